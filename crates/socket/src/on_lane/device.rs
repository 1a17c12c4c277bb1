//! Owns what a stack is attached to: a memory link, a TUN interface, or queues that the caller brings.

use super::{AnyQueue, LinkConfig, StartError};
use laneway_stack::device::Medium;
use laneway_stack::device::memory::link::QUEUES_MAX;
use laneway_stack::device::memory::{self, Indirection, LinkQueue, Steer, SteerFlow};
use laneway_stack::entropy::BootSecrets;
use laneway_stack::runtime::Bells;
use laneway_stack::steering::Steering;
use std::any::Any;
use std::sync::Arc;

/// What a stack is attached to.
pub struct Device(pub(super) Kind);

pub(super) enum Kind {
    /// One end of a memory link, with the secrets and the table by which the other end steers, and the bells that it rings.
    Memory { queues: Vec<LinkQueue>, secrets: Box<BootSecrets>, bells: Bells, table: Arc<Indirection> },
    /// A TUN interface, to be opened when its stack starts.
    Tun { name: String, mtu: Option<usize> },
    /// Queues of any kind.
    Queues(Vec<AnyQueue>),
}

impl Device {
    /// The two ends of a link in memory, each with as many queues as its stack shall have lanes. It carries bare IP: an address that the
    /// other end does not have is silent, since nobody is asked who has it.
    pub fn memory_pair(lanes: usize) -> Result<(Device, Device), StartError> {
        Self::memory_pair_with(LinkConfig { queues: lanes, ..LinkConfig::default() })
    }

    /// Like [`memory_pair`](Self::memory_pair), with sizes, offloads and MTU of your choice, and with Ethernet if you like. What `config`
    /// says of steering and interrupts is replaced: each stack has its own.
    ///
    /// ```
    /// use laneway::on_lane::{Device, LinkConfig, Medium};
    /// let config = LinkConfig { medium: Medium::Ethernet, mtu: 9_000, ..LinkConfig::default() };
    /// let (here, there) = Device::memory_pair_with(config)?;
    /// assert_eq!((here.medium(), there.medium()), (Medium::Ethernet, Medium::Ethernet));
    /// # Ok::<(), laneway::StartError>(())
    /// ```
    pub fn memory_pair_with(mut config: LinkConfig) -> Result<(Device, Device), StartError> {
        let queues = [config.queues, config.second_queues.unwrap_or(config.queues)];
        if let Some(n) = queues.iter().find(|n| !(1..=QUEUES_MAX).contains(*n)) {
            return Err(StartError::Misuse(format!("a memory link has 1 to {QUEUES_MAX} lanes at each end, not {n}")));
        }
        let header = config.medium.header_len();
        let secrets = [BootSecrets::from_system(), BootSecrets::from_system()];
        let bells = [Bells::new(queues[0])?, Bells::new(queues[1])?];
        let steer = |end: usize| {
            let steering = Steering::new(secrets[end].steering, queues[end]);
            let table = Indirection::new(steering.indirection(), queues[1 - end]);
            let of_flow = steering.clone();
            let steer: Steer = Arc::new(move |frame: &[u8]| steering.bucket_of_frame(frame, header));
            let steer_flow: SteerFlow = Arc::new(move |flow: &dyn Any| of_flow.bucket_of_sent(flow));
            (steer, steer_flow, table)
        };
        let [(steer0, flow0, t0), (steer1, flow1, t1)] = [steer(0), steer(1)];
        config.steer = [Some(steer0), Some(steer1)];
        config.steer_flow = [Some(flow0), Some(flow1)];
        config.tables = [Some(t0.clone()), Some(t1.clone())];
        config.wake = [Some(bells[0].interrupt()), Some(bells[1].interrupt())];
        let (first, second) = memory::link(config);
        let [s0, s1] = secrets;
        let [b0, b1] = bells;
        let end =
            |queues, secrets, bells, table| Device(Kind::Memory { queues, secrets: Box::new(secrets), bells, table });
        Ok((end(first, s0, b0, t0), end(second, s1, b1, t1)))
    }

    /// A TUN interface of this name, created if it does not exist: the way to talk to programs that use the kernel's
    /// sockets. Needs `CAP_NET_ADMIN`, or an interface that was made for this user. It is opened when the stack starts.
    pub fn tun(name: impl Into<String>) -> Device {
        Device(Kind::Tun { name: name.into(), mtu: None })
    }

    /// Like [`tun`](Self::tun), with an MTU in bytes.
    pub fn tun_with_mtu(name: impl Into<String>, mtu: usize) -> Device {
        Device(Kind::Tun { name: name.into(), mtu: Some(mtu) })
    }

    /// Queues of any device, one per lane. One without a descriptor to wait for is asked every millisecond while idle.
    ///
    /// This attaches three stacks to one switch in memory; a device of your own implements [`Rx`](super::Rx) and [`Tx`](super::Tx), whose
    /// types are in the crate `laneway-device`.
    ///
    /// ```
    /// use laneway::{Device, Stack, TcpListener, TcpStream};
    /// use laneway_stack::device::memory::{SwitchConfig, switch}; // laneway-device, for a program of your own
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (mut switch, ports) = switch(SwitchConfig::new(3));
    /// std::thread::spawn(move || {
    ///     loop {
    ///         if switch.poll() == 0 {
    ///             std::thread::sleep(std::time::Duration::from_micros(50));
    ///         }
    ///     }
    /// });
    /// let mut stacks = Vec::new();
    /// for (number, port) in (1..).zip(ports) {
    ///     let device = Device::queues(vec![port.boxed()]);
    ///     stacks.push(Stack::builder(device).address(&format!("10.0.0.{number}/24"))?.start()?);
    /// }
    /// let listener = TcpListener::bind_on(&stacks[2], "10.0.0.3:80")?;
    /// let stream = TcpStream::connect_on(&stacks[0], "10.0.0.3:80")?;
    /// let (_, peer) = listener.accept()?;
    /// assert_eq!(peer, stream.local_addr()?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn queues(queues: Vec<AnyQueue>) -> Device {
        Device(Kind::Queues(queues))
    }

    /// What its frames begin with: an IP header, and then there are no neighbours to find, or one of Ethernet.
    pub fn medium(&self) -> Medium {
        match &self.0 {
            Kind::Memory { queues, .. } => queues.first().map_or(Medium::Ip, |queue| queue_medium(&queue.tx)),
            Kind::Tun { .. } => Medium::Ip,
            Kind::Queues(queues) => queues.first().map_or(Medium::Ip, |queue| queue_medium(&queue.tx)),
        }
    }
}

fn queue_medium(tx: &impl super::Tx) -> Medium {
    tx.capabilities().medium
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Kind::Memory { queues, .. } => write!(f, "Device::memory({} queues)", queues.len()),
            Kind::Tun { name, .. } => write!(f, "Device::tun({name:?})"),
            Kind::Queues(queues) => write!(f, "Device::queues({})", queues.len()),
        }
    }
}
