use super::*;
use std::net::IpAddr;

fn address(text: &str) -> Address {
    Address::from(text.parse::<IpAddr>().expect("an address"))
}

#[test]
fn one_other_host_can_be_remote_and_nothing_else() {
    for good in ["1.0.0.1", "10.0.0.2", "126.1.1.1", "128.0.0.1", "223.255.255.254", "fe80::1", "2001:db8::1"] {
        assert!(can_be_remote(&address(good), |_| false), "{good}");
        assert!(!can_be_remote(&address(good), |_| true), "{good} is ours");
    }
    for bad in [
        "0.0.0.0",
        "0.1.2.3",
        "127.0.0.1",
        "224.0.0.1",
        "239.1.1.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "ff02::1",
    ] {
        assert!(!can_be_remote(&address(bad), |_| false), "{bad}");
    }
}

#[test]
fn a_network_of_more_than_two_has_a_broadcast_address() {
    for (of, len, is) in [
        ("10.0.0.1", 24, Some("10.0.0.255")),
        ("10.0.0.1", 30, Some("10.0.0.3")),
        ("10.0.0.1", 8, Some("10.255.255.255")),
        ("10.0.0.1", 0, Some("255.255.255.255")),
        ("10.0.0.1", 31, None),
        ("10.0.0.1", 32, None),
        ("fd00::1", 24, None),
    ] {
        assert_eq!(directed_broadcast(&address(of), len), is.map(address), "{of}/{len}");
    }
}
