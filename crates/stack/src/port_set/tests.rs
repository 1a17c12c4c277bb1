//! What was put in is in, and nothing beside it.

use super::*;

#[test]
fn it_has_what_was_put_in() {
    let (mut a, mut b) = (PortSet::new(), PortSet::default());
    assert!(a.is_empty());
    for port in [0, 63, 64, 40_000] {
        a.insert(port);
    }
    b.insert(40_000);
    b.insert(u16::MAX);
    a.merge(&b);
    let all: Vec<u16> = (0..=u16::MAX).filter(|port| a.contains(*port)).collect();
    assert_eq!(all, [0, 63, 64, 40_000, u16::MAX]);
    assert_eq!((a.len(), b.len()), (5, 2));
    assert_eq!(format!("{b:?}"), "PortSet(2 ports)");
}
