//! The containers of a lane: each owned by one thread, none with an atomic, all generic over what they hold. (One is not a
//! lane's: reservations are rare, and whoever makes them takes a lock.)
//!
//! What they have in common: no operation on the hot path takes time proportional to the size of the container. They
//! grow by chunk or by generation, never all at once, and in a steady state they call no allocator.
//!
//! * [`handle_table`] — hash to handle; one cache line per look-up; grows while it works.
//! * [`slab`] — handle to value; values never move.
//! * [`fifo`] — a queue whose records can be reached by position while they wait.
//! * [`wheel`] — deadlines; lazily re-armed, never cancelled.
//! * [`reservation_table`] — who has reserved what, in two steps; a lock per bucket.
//!
//! A slab has the values with their keys, and a handle table finds them by a hash that the caller makes:
//!
//! ```
//! use laneway_table::{HandleTable, Slab};
//!
//! let hash = |name: &str| name.bytes().fold(0xcbf2_9ce4_8422_2325, |h: u64, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
//! let (mut values, mut by_name) = (Slab::<&str>::new(), HandleTable::with_capacity(16));
//! for name in ["ada", "grace"] {
//!     by_name.insert(hash(name), values.insert(name));
//! }
//! let found = by_name.find(hash("ada"), |handle| values.get(handle) == Some(&"ada")).expect("it is there");
//! assert!(by_name.remove(hash("ada"), found));
//! assert_eq!(values.remove(found), Some("ada"));
//! assert_eq!(by_name.find(hash("ada"), |_| true), None);
//! ```

#![deny(unsafe_code, unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

mod bucket;
pub mod fifo;
pub mod handle_table;
pub mod reservation_table;
pub mod slab;
pub mod wheel;

pub use fifo::Fifo;
pub use handle_table::HandleTable;
pub use reservation_table::ReservationTable;
pub use slab::Slab;
pub use wheel::Wheel;
