use super::*;

#[test]
fn the_right_order_passes_and_is_forgotten_afterwards() {
    for _ in 0..2 {
        let info = taking(Class::Info);
        let pcb = taking(Class::Pcb);
        {
            let _time_wait = taking(Class::TimeWait);
        }
        let list = taking(Class::List);
        drop(pcb); // what is given back need not be the last
        drop(info);
        drop(list);
    }
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "lock order: Info is wanted by a thread that holds Pcb")]
fn a_wrong_order_is_caught() {
    let _pcb = taking(Class::Pcb);
    let _info = taking(Class::Info);
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "lock order: Pcb is wanted by a thread that holds Pcb")]
fn two_of_a_class_are_caught() {
    let _one = taking(Class::Pcb);
    let _other = taking(Class::Pcb);
}
