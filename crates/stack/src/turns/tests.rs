use super::*;

#[test]
fn they_have_their_turns_in_order_and_what_is_left_keeps_its_place() {
    let mut turns = Turns::default();
    (1..=4).for_each(|index| turns.add(index));
    assert_eq!((turns.take_before(0), turns.take_before(0)), (Some(1), Some(2)));
    turns.add(1); // it has more, and the others have their turn first
    assert_eq!(turns.take_before(0), Some(3));
    turns.untake(); // the device was full
    turns.rest();
    assert_eq!(turns.len(), 3);
    turns.add(5);
    assert_eq!(
        [turns.take_before(0), turns.take_before(0), turns.take_before(0), turns.take_before(0), turns.take_before(0)],
        [Some(3), Some(4), Some(1), Some(5), None]
    );
    turns.rest();
    assert_eq!((turns.len(), turns.take_before(0)), (0, None));
}

#[test]
fn those_that_come_later_are_left() {
    let mut turns = Turns::default();
    for index in [1, 2, 3] {
        turns.add(index);
    }
    assert_eq!([turns.take_before(1), turns.take_before(1), turns.take_before(1)], [Some(1), Some(2), None]);
    assert_eq!(turns.take_before(2), None, "there are fewer than that");
    assert_eq!(turns.take_before(0), Some(3));
}

/// More than the list has places at first, and more left than have had their turn.
#[test]
fn many_keep_their_order_too() {
    let mut turns = Turns::default();
    let mut model = std::collections::VecDeque::new();
    for poll in 0..100u32 {
        for i in 0..poll * 7 % 90 {
            turns.add(poll * 1_000 + i);
            model.push_back(poll * 1_000 + i);
        }
        for _ in 0..40 {
            assert_eq!(turns.take_before(0), model.pop_front());
        }
        turns.rest();
        assert_eq!(turns.len(), model.len());
    }
    assert!(turns.list.len() > APART + LEAST, "it was long at times");
}
