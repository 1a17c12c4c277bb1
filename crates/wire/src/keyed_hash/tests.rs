use super::*;
use proptest::prelude::*;
use siphasher::sip::SipHasher13;
use std::format;
use std::hash::Hasher;
use std::vec::Vec;

/// The `siphasher` crate, over the same words as bytes.
fn oracle(key: &HashKey, words: &[u64]) -> u64 {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut hasher = SipHasher13::new_with_keys(key.k0, key.k1);
    hasher.write(&bytes);
    hasher.finish()
}

proptest! {
    #[test]
    fn agrees_with_another_implementation(
        k0: u64,
        k1: u64,
        words in prop::collection::vec(any::<u64>(), 0..70),
    ) {
        let key = HashKey::new(k0, k1);
        prop_assert_eq!(key.sip13(&words), oracle(&key, &words));
    }

    #[test]
    fn constant_lengths_agree(k0: u64, k1: u64, words: [u64; 5]) {
        let key = HashKey::new(k0, k1);
        let two = [words[0], words[1]];
        let three = [words[0], words[1], words[2]];
        let four = [words[0], words[1], words[2], words[3]];
        prop_assert_eq!(key.sip13_words(&two), oracle(&key, &two));
        prop_assert_eq!(key.sip13_words(&three), oracle(&key, &three));
        prop_assert_eq!(key.sip13_words(&four), oracle(&key, &four));
        prop_assert_eq!(key.sip13_words(&words), oracle(&key, &words));
        prop_assert_eq!(key.sip13(&words), oracle(&key, &words));
        prop_assert_eq!(key.sip13(&two), oracle(&key, &two));
    }

    #[test]
    fn a_tail_is_the_bytes_after_the_words(k0: u64, k1: u64, word: u64, tail: u64, len in 0..8u32) {
        let key = HashKey::new(k0, k1);
        let tail = tail & ((1 << (8 * len)) - 1);
        let bytes = [&word.to_le_bytes()[..], &tail.to_le_bytes()[..len as usize]].concat();
        let mut hasher = SipHasher13::new_with_keys(k0, k1);
        hasher.write(&bytes);
        prop_assert_eq!(key.sip13_tail(&[word], tail, len), hasher.finish());
    }
}

#[test]
fn a_key_does_not_print_itself() {
    assert_eq!(format!("{:?}", HashKey::new(1, 2)), "HashKey(secret)");
}
