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
