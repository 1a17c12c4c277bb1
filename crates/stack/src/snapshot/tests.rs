use super::*;

fn address(number: u32) -> Address {
    Address::from_v4(number.to_be_bytes())
}

/// So many that some do not lie in the place that is looked at first.
#[test]
fn a_set_holds_its_addresses_and_no_others() {
    let mut v6 = [0; 16];
    v6[0] = 0xfd;
    v6[15] = 1;
    let ours: Vec<Address> = (0..1_000).map(|i| address(0x0a00_0001 + 2 * i)).chain([Address::from_v6(v6)]).collect();
    let set = AddressSet::new(&ours);
    let displaced =
        ours.iter().filter(|address| set.places[mix(address) & (set.places.len() - 1)] != **address).count();
    assert!(displaced > 50, "{displaced} of them do not lie there");
    for address in &ours {
        assert!(set.contains(address), "{address}");
        assert_eq!(set.contains_v4(address.octets_v4()), address.is_v4(), "{address}");
    }
    for i in 0..1_000 {
        let other = address(0x0a00_0002 + 2 * i);
        assert!(!set.contains(&other), "{other}");
        assert!(!set.contains_v4(other.octets_v4()), "{other}");
    }
}

#[test]
fn the_unspecified_address_is_never_ours() {
    for ours in [&[][..], &[Address::UNSPECIFIED_V4, Address::UNSPECIFIED_V6, address(1)]] {
        let set = AddressSet::new(ours);
        assert!(!set.contains(&Address::UNSPECIFIED_V4));
        assert!(!set.contains(&Address::UNSPECIFIED_V6));
        assert!(!set.contains_v4([0; 4]));
        assert_eq!(set.contains(&address(1)), !ours.is_empty());
    }
}
