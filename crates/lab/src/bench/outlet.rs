//! Owns the sending half of a rig's link: as it is, or with a way of referring to routes on it whose kind is chosen at run time.
//!
//! Each way is a type of its own ([`laneway_stack::references`]), and so would be a whole stack for each. What is compared here
//! goes through one indirect call, the product's way as well, so that it is the same for all.

use super::crew::{End, Shape};
use super::options::ReferencesName;
use laneway_device::memory::{LinkRx, LinkTx};
use laneway_device::{Capabilities, Queue, Rx, Tx, TxMeta};
use laneway_stack::references::{Borrowed, ByArc, R0, R1, R2, R3, References, Tally};
use std::any::Any;

/// The queues of a link's end.
pub type Queues<R, T> = Vec<Queue<R, T>>;

/// The sending half of a link, and what was counted on it.
pub trait Way: Tx + Send + Sized + 'static {
    /// The receiving half beside it.
    type In: Rx + Send;
    /// For all queues of one stack, which is this end of the link.
    fn attach(queues: Queues<LinkRx, LinkTx>, shape: &Shape, end: End) -> Queues<Self::In, Self>;
    /// What packets did to routes.
    fn tally(&self) -> Tally;
}

/// The product: there is nothing on it.
impl Way for LinkTx {
    type In = LinkRx;
    fn attach(queues: Queues<LinkRx, LinkTx>, _: &Shape, _: End) -> Queues<LinkRx, LinkTx> {
        queues
    }
    fn tally(&self) -> Tally {
        Tally::default()
    }
}

/// An outlet that can be asked what it counted.
trait Told: Tx + Send {
    fn told(&self) -> Tally;
}

struct Telling<F: References>(F::Outlet<LinkTx>);

impl<F: References> Tx for Telling<F> {
    #[inline]
    fn capabilities(&self) -> &Capabilities {
        self.0.capabilities()
    }
    #[inline]
    fn reserve(&mut self, len: usize) -> Option<&mut [u8]> {
        self.0.reserve(len)
    }
    #[inline]
    fn reserve_for(&mut self, len: usize, flow: &dyn Any) -> Option<&mut [u8]> {
        self.0.reserve_for(len, flow)
    }
    #[inline]
    fn commit(&mut self, len: usize, meta: TxMeta) {
        self.0.commit(len, meta);
    }
    #[inline]
    fn flush(&mut self) {
        self.0.flush();
    }
    #[inline]
    fn on_behalf(&mut self, what: &dyn Any, number: u32) {
        self.0.on_behalf(what, number);
    }
}

impl<F: References> Told for Telling<F>
where
    F::Outlet<LinkTx>: Send,
{
    fn told(&self) -> Tally {
        F::tally(&self.0)
    }
}

/// With any way of referring to routes.
pub struct AnyWay(Box<dyn Told>);

fn any<F: References>(queues: Queues<LinkRx, LinkTx>) -> Queues<LinkRx, AnyWay>
where
    F::Outlet<LinkTx>: Send + 'static,
{
    let boxed = |queue: Queue<LinkRx, _>| Queue { rx: queue.rx, tx: AnyWay(Box::new(Telling::<F>(queue.tx))) };
    F::attach(queues).into_iter().map(boxed).collect()
}

impl Way for AnyWay {
    type In = LinkRx;
    fn attach(queues: Queues<LinkRx, LinkTx>, shape: &Shape, _: End) -> Queues<LinkRx, AnyWay> {
        match shape.references {
            ReferencesName::R0 => any::<R0>(queues),
            ReferencesName::R1 => any::<R1>(queues),
            ReferencesName::R2 => any::<R2>(queues),
            ReferencesName::R3 => any::<R3>(queues),
            ReferencesName::Arc => any::<ByArc>(queues),
            ReferencesName::Lane => any::<Borrowed>(queues),
        }
    }
    fn tally(&self) -> Tally {
        self.0.told()
    }
}

impl Tx for AnyWay {
    #[inline]
    fn capabilities(&self) -> &Capabilities {
        self.0.capabilities()
    }
    #[inline]
    fn reserve(&mut self, len: usize) -> Option<&mut [u8]> {
        self.0.reserve(len)
    }
    #[inline]
    fn reserve_for(&mut self, len: usize, flow: &dyn Any) -> Option<&mut [u8]> {
        self.0.reserve_for(len, flow)
    }
    #[inline]
    fn commit(&mut self, len: usize, meta: TxMeta) {
        self.0.commit(len, meta);
    }
    #[inline]
    fn flush(&mut self) {
        self.0.flush();
    }
    #[inline]
    fn on_behalf(&mut self, what: &dyn Any, number: u32) {
        // Not the box's own, which is the device's: nothing.
        (*self.0).on_behalf(what, number);
    }
}
