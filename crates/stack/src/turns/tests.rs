use super::*;

#[test]
fn they_have_their_turns_in_order_and_what_is_left_keeps_its_place() {
    let mut turns = Turns::default();
    (1..=4).for_each(|index| turns.add(index));
    assert_eq!((turns.take(), turns.take()), (Some(1), Some(2)));
    turns.add(1); // it has more, and the others have their turn first
    assert_eq!(turns.take(), Some(3));
    turns.untake(); // the device was full
    turns.rest();
    assert_eq!(turns.len(), 3);
    turns.add(5);
    assert_eq!(
        [turns.take(), turns.take(), turns.take(), turns.take(), turns.take()],
        [Some(3), Some(4), Some(1), Some(5), None]
    );
    turns.rest();
    assert_eq!((turns.len(), turns.take()), (0, None));
}
