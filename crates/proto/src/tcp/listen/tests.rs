use super::*;

#[test]
fn the_scales_of_both_ends_fit_one_byte() {
    for peers in 0..=14 {
        for ours in 0..=14 {
            let both = Scales::new(WindowScale::new(peers), WindowScale::new(ours));
            assert!(both != Scales::NONE);
            assert_eq!((both.peers().get(), both.ours().get()), (peers, ours));
        }
    }
    assert_eq!((Scales::NONE.peers().get(), Scales::NONE.ours().get()), (0, 0));
}
