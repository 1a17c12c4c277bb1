//! What cores share: the few primitives through which one thread hands something to another.
//!
//! Each primitive has a room of its own: `mod.rs` (an essay, then the code), `tests.rs` (what it promises), `loom.rs`
//! (a model of every interleaving, and known-broken variants that the model must catch). The last four of this list hand
//! nothing over, and are a file each. Nothing here knows what the bytes that pass through
//! it mean.
//!
//! * [`ring::records`] — one producer, one consumer, records of any length, written and read in place.
//! * [`ring::items`] — one producer, one consumer, values of one type.
//! * [`ring::bytes`] — a conversation of bytes between a lane and an application, in blocks that are lent and taken back.
//! * [`ring::handout`] — one producer, and any number of takers with one exchange each.
//! * [`wake`] — the list of what a consumer must look at, and the flags of those who wait.
//! * [`epoch`] — replaces what others read without a lock, and says when nobody reads the old any more.
//! * [`rcuref`] — counts references without a loop, for what is freed after a grace period.
//! * [`counted`] — an object that many find and each keeps for a while, and where its count lies.
//! * [`doorbell`] — wakes a consumer that sleeps, and costs a fence and a load when it does not.
//! * [`duty`] — lets whoever brings work to a sleeper do it in its stead, and nobody wait.
//! * [`bucket_lock`] — four bytes that let one thread at a time into a bucket.
//! * [`rw_lock`] — many may look or one may change, and a lone reader may try to upgrade.
//! * [`profiled_lock`] — any lock, and who waited for whom at it.
//! * [`fork`] — says whether this process is the child of one that had the thing, and keeps secrets from it.
//! * [`met`] — what a thread has waited for and tried again, counted where nobody else looks.
//! * [`padded`] — keeps what two cores write on lines of their own.
//! * [`prefetch`] — "I shall need this soon".
//!
//! Models: `RUSTFLAGS="--cfg laneway_loom" cargo test -p laneway-sync --release --lib loom`.

#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

pub mod bucket_lock;
pub mod counted;
pub mod doorbell;
pub mod duty;
pub mod epoch;
pub mod fork;
pub mod met;
pub mod padded;
mod pages;
mod pointer;
pub mod prefetch;
mod primitive;
pub mod profiled_lock;
pub mod rcuref;
pub mod ring;
pub mod rw_lock;
pub mod wake;

pub use doorbell::{Doorbell, ParkFlag, Sleeper, Wake};
pub use padded::Padded;
pub use ring::items::{ItemConsumer, ItemProducer, items};
pub use ring::records::{RecordConsumer, RecordProducer, records};
