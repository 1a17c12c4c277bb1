use super::*;
use proptest::prelude::*;
use std::collections::HashMap;
use std::rc::Rc;

#[derive(Clone, Debug)]
enum Step {
    Insert,
    Remove(u32),
    Discard(u32),
    Change(u32),
}

fn behaves_as_a_map<const ENTRIES: usize>(steps: &[Step]) -> Result<(), TestCaseError> {
    let mut slab = Slab::<Box<u32>, ENTRIES>::new();
    let mut model: HashMap<u32, Box<u32>> = HashMap::new();
    let mut generations: HashMap<u32, u32> = HashMap::new();
    let mut freed = Vec::new();
    for (i, step) in (0u32..).zip(steps.iter().cloned()) {
        match step {
            Step::Insert => {
                let (handle, generation) = slab.insert_with(|handle| Box::new(i ^ handle));
                prop_assert_eq!(generation, slab.generation(handle));
                prop_assert!(model.insert(handle, Box::new(i ^ handle)).is_none());
                if let Some(last) = freed.pop() {
                    prop_assert_eq!(handle, last, "last in, first out");
                }
            }
            Step::Remove(handle) => {
                let removed = model.remove(&handle);
                prop_assert_eq!(slab.remove(handle), removed.clone());
                if removed.is_some() {
                    freed.push(handle);
                    *generations.entry(handle).or_default() += 1;
                }
            }
            Step::Discard(handle) => {
                let removed = model.remove(&handle).is_some();
                prop_assert_eq!(slab.discard(handle), removed);
                if removed {
                    freed.push(handle);
                    *generations.entry(handle).or_default() += 1;
                }
            }
            Step::Change(handle) => {
                if let Some(value) = slab.get_mut(handle) {
                    **value += 1;
                    **model.get_mut(&handle).expect("it is in the slab") += 1;
                }
            }
        }
        slab.prefetch(i);
        prop_assert_eq!(slab.len(), model.len());
    }
    for handle in (0..90).chain([u32::MAX]) {
        prop_assert_eq!(slab.get(handle), model.get(&handle));
        prop_assert_eq!(slab.contains(handle), model.contains_key(&handle));
        prop_assert_eq!(slab.generation(handle), *generations.get(&handle).unwrap_or(&0));
    }
    let all: HashMap<u32, Box<u32>> = slab.iter().map(|(h, v)| (h, v.clone())).collect();
    prop_assert_eq!(&all, &model);
    prop_assert_eq!(slab.iter_mut().count(), model.len());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn behaves_as_a_map_whatever_the_chunk(
        steps in prop::collection::vec(prop_oneof![
            3 => Just(Step::Insert),
            1 => (0u32..80).prop_map(Step::Remove),
            1 => (0u32..80).prop_map(Step::Discard),
            1 => (0u32..80).prop_map(Step::Change),
        ], 1..300),
    ) {
        behaves_as_a_map::<1>(&steps)?;
        behaves_as_a_map::<4>(&steps)?;
        behaves_as_a_map::<256>(&steps)?;
    }
}

#[test]
fn values_do_not_move_when_the_slab_grows() {
    let mut slab = Slab::<_, 4>::new();
    let first = slab.insert([7u64; 8]);
    let address = std::ptr::from_ref(&slab[first]).addr();
    for _ in 0..1000 {
        slab.insert([0; 8]);
    }
    assert_eq!(std::ptr::from_ref(&slab[first]).addr(), address);
}

#[test]
fn a_reserved_slab_does_not_allocate() {
    let mut slab = Slab::<_, 16>::new();
    slab.reserve(100);
    let bytes = slab.bytes();
    for i in 0..100u32 {
        slab.insert(i);
    }
    assert_eq!(slab.bytes(), bytes);
}

#[test]
fn values_are_dropped_when_they_go_and_when_the_slab_goes() {
    let value = Rc::new(());
    let mut slab = Slab::<_, 2>::new();
    let handles: Vec<u32> = (0..5).map(|_| slab.insert(value.clone())).collect();
    slab.discard(handles[0]);
    drop(slab.remove(handles[1]));
    assert_eq!(Rc::strong_count(&value), 4);
    drop(slab);
    assert_eq!(Rc::strong_count(&value), 1);
}

#[test]
#[should_panic(expected = "handle 3 has no value")]
fn an_index_without_value_says_so() {
    let slab = Slab::<u32, 4>::new();
    let _ = slab[3];
}

#[test]
fn what_is_forgotten_is_not_dropped_and_stays_if_it_is_told_to() {
    let value = Rc::new(());
    let mut slab = Slab::<_, 2>::new();
    let handle = slab.insert(Some(value.clone()));
    assert!(!slab.forget_if(handle, |_| false));
    assert!(slab.contains(handle));
    let mut kept = None;
    assert!(slab.forget_if(handle, |value| {
        kept = value.take();
        true
    }));
    assert_eq!((slab.len(), slab.generation(handle), Rc::strong_count(&value)), (0, 1, 2));
    assert!(!slab.forget_if(handle, |_| unreachable!("it has gone")));
    assert_eq!(slab.insert(None), handle);
}
