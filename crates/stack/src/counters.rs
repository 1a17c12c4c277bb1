//! Owns what a lane counts: MIB names as the kernel's `nstat` prints them, and one counter per [`Discard`].
//!
//! A lane counts in plain integers that only it writes; whoever reads gets a copy.

use laneway_device::tun::TunCounters;
use laneway_proto::discard::Discard;
use laneway_sync::met::Met;
use std::borrow::Cow;
use std::sync::atomic::Ordering::Relaxed;

macro_rules! mib {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// A counter by the name that the kernel gives it, or in its manner.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        #[allow(missing_docs)]
        pub enum Mib { $($(#[$doc])* $name),* }

        impl Mib {
            /// Every counter, in order.
            pub const ALL: &'static [Mib] = &[$(Mib::$name),*];
            /// The printed name.
            pub const fn name(self) -> &'static str {
                match self { $(Mib::$name => stringify!($name)),* }
            }
        }
    };
}

mib! {
    IpInReceives,
    /// What IP was asked to send, before it made fragments of it.
    IpOutRequests,
    IpOutNoRoutes, IpReasmOKs, IpReasmFails, IpFragOKs, IpFragFails, IpFragCreates,
    IpExtInOctets,
    /// Packets of connections that use ECN, which a router has marked on their way. (The kernel counts all.)
    IpExtInCEPkts,
    /// Octets of what left: fragments each with their header, super-segments with one.
    IpExtOutOctets,
    IcmpInMsgs, IcmpInErrors, IcmpOutMsgs,
    TcpActiveOpens, TcpPassiveOpens, TcpAttemptFails, TcpEstabResets, TcpInSegs, TcpOutSegs, TcpRetransSegs,
    TcpInErrs, TcpOutRsts,
    TcpExtListenOverflows, TcpExtListenDrops,
    /// Half-open connections that the peer reset. They are attempts that failed, too.
    TcpExtEmbryonicRsts,
    /// SYNs dropped because no half-open connection more may be, and cookies are off.
    TcpExtTCPReqQFullDrop,
    TcpExtSyncookiesSent, TcpExtSyncookiesRecv, TcpExtSyncookiesFailed,
    TcpExtTW,
    /// TIME_WAIT records that a new connection took over, ours or the peer's. (The kernel's are those that `connect` took over.)
    TcpExtTWRecycled,
    /// TIME_WAIT records whose time was over. (The kernel counts none of these.)
    TcpExtTWKilled,
    TcpExtTCPTimeWaitOverflow, TcpExtTCPTimeouts,
    /// Paths that were found to swallow packets which they were thought to carry. (The kernel's are probes that were lost.)
    TcpExtTCPMTUPFail,
    /// Tail loss probes that were due.
    TcpExtTCPLossProbes,
    TcpExtTCPAbortOnTimeout,
    /// Connections that the application had closed, and that made room when memory ran out.
    TcpExtTCPAbortOnMemory,
    TcpExtTCPChallengeACK,
    /// Writes that joined bytes which no rule holds back: the poll goes on, or the device is full.
    TcpExtTCPAutoCorking,
    /// Super-segments: what left as one packet and stands for several segments.
    TcpSuperSegs,
    /// The segments that they stand for.
    TcpSuperSegsPieces,
    /// A small segment began to wait for the acknowledgement of the one before it (Nagle, Minshall).
    TcpHeldSmall,
    /// A small segment began to wait for the cork to be taken out.
    TcpHeldCorked,
    /// Data began to wait for an acknowledgement that lets more of it leave at once.
    TcpHeldDeferred,
    /// Segments that were nothing but an acknowledgement. (The kernel's `TcpExtTCPPureAcks` are those that came in.)
    TcpAcksPure,
    /// Acknowledgements of text that rode on data.
    TcpAcksPiggybacked,
    /// Segments that went through TCP's input together with the one before them, or ACKs with the one behind.
    TcpInMerged,
    /// Super-packets that the device handed in.
    TcpInSuperSegs,
    /// Of what was sent to all hosts of a network, or to a group, each copy that a socket got.
    UdpInDatagrams,
    UdpNoPorts, UdpInErrors, UdpOutDatagrams, UdpRcvbufErrors, UdpSndbufErrors,
    /// Datagrams to all hosts of a network, or to a group, that no socket here wants. Nobody is told.
    UdpIgnoredMulti,
    /// Frames that arrived on a lane which does not own their flow.
    SteerMiss,
    /// Frames taken over from other lanes.
    SteerMailed,
    /// Frames for which the owner of a bucket that moves had nothing, so that it asked the former owner.
    SteerAsked,
    /// Of those, the ones for which that had nothing either.
    SteerReturned,
    /// Sends put off because the device was full.
    TxBusy,
    /// Frames that a TUN interface had no room for. They are lost.
    TunTxFull,
    /// Frames that a TUN interface refused, as it does when it is down.
    TunTxRefused,
    /// Reads of a TUN interface that failed.
    TunRxErrors,
    /// Frames from a TUN interface that were too short.
    TunRxShort,
    /// Polls that found a frame, mail or a timer.
    PollsBusy,
    /// Polls that found nothing.
    PollsIdle,
    /// Polls that took more than 10 ms.
    PollsSlow,
    /// Times that a thread of the application worked in a sleeping lane's stead, …
    StandIns,
    /// … and for how long in all, in microseconds.
    StandInUs,
    /// Microseconds of polls that did something, each with what passed until the next began. A lane that has a thread counts it.
    LaneBusyUs,
    /// Microseconds of polls that found nothing, and of what followed them until the next: looking again, and sleeping.
    LaneIdleUs,
    /// Of those, microseconds in which the lane slept.
    LaneSleepUs,
    /// Locks that somebody else held when the lane's thread wanted them.
    LocksContended,
    /// Compare-exchanges of the lane's thread that another thread's came before.
    CasRetries,
    /// Calls of `accept`.
    SCAccept,
    /// Calls of `accept` that found nobody.
    SCAF,
    /// SYNs that were answered with RST, because nobody listens there.
    TcpRefused,
    /// SYNs of our own active opens that were sent again.
    ConnectRetries,
    /// Callbacks of the application that panicked; each lost the connection that it was about.
    AppPanics,
}

/// The counters of one lane.
#[derive(Clone, Debug)]
pub struct Counters {
    mib: [u64; Mib::ALL.len()],
    discards: [u64; Discard::ALL.len()],
}

impl Default for Counters {
    fn default() -> Self {
        Counters { mib: [0; Mib::ALL.len()], discards: [0; Discard::ALL.len()] }
    }
}

impl Counters {
    /// Counts one.
    #[inline]
    pub fn count(&mut self, mib: Mib) {
        self.mib[mib as usize] += 1;
    }

    /// Counts `n`.
    #[inline]
    pub fn add(&mut self, mib: Mib, n: u64) {
        self.mib[mib as usize] += n;
    }

    /// Counts `n` less: they were counted a moment ago, before it was known that they should not be.
    pub(crate) fn take_back(&mut self, mib: Mib, n: u64) {
        self.mib[mib as usize] -= n;
    }

    /// Counts a packet that went no further.
    #[cold]
    #[inline(never)]
    pub fn discard(&mut self, discard: Discard) {
        self.discard_all(discard, 1);
    }

    /// Counts so many.
    #[inline]
    pub fn discard_all(&mut self, discard: Discard, packets: usize) {
        self.discards[discard as usize] += packets as u64;
    }

    /// The value of one counter.
    pub fn get(&self, mib: Mib) -> u64 {
        self.mib[mib as usize]
    }

    /// How many packets were dropped for this reason.
    pub fn discarded(&self, discard: Discard) -> u64 {
        self.discards[discard as usize]
    }

    /// Adds what a thread has met at locks and shared words.
    pub(crate) fn add_met(&mut self, met: Met) {
        self.add(Mib::LocksContended, met.contended);
        self.add(Mib::CasRetries, met.retries);
    }

    /// Adds what a queue of a TUN interface has counted itself.
    pub(crate) fn add_tun(&mut self, queue: &TunCounters) {
        self.add(Mib::TunTxFull, queue.tx_full.load(Relaxed));
        self.add(Mib::TunTxRefused, queue.tx_refused.load(Relaxed));
        self.add(Mib::TunRxErrors, queue.rx_errors.load(Relaxed));
        self.add(Mib::TunRxShort, queue.rx_short.load(Relaxed));
    }

    /// Adds another lane's counters.
    pub fn merge(&mut self, other: &Counters) {
        for (sum, n) in self.mib.iter_mut().zip(&other.mib) {
            *sum += n;
        }
        for (sum, n) in self.discards.iter_mut().zip(&other.discards) {
            *sum += n;
        }
    }

    /// Every counter, zeroes included: MIB names first, then discards as `Discard<Name>`.
    pub fn all(&self) -> impl Iterator<Item = (Cow<'static, str>, u64)> + '_ {
        let mib = Mib::ALL.iter().map(|m| (Cow::Borrowed(m.name()), self.get(*m)));
        let discards = Discard::ALL.iter().map(|d| (format!("Discard{}", d.name()).into(), self.discarded(*d)));
        mib.chain(discards)
    }

    /// Every counter that is not zero: MIB names first, then discards as `Discard<Name>`.
    pub fn iter(&self) -> impl Iterator<Item = (String, u64)> + '_ {
        self.all().filter(|(_, n)| *n > 0).map(|(name, n)| (name.into_owned(), n))
    }
}
