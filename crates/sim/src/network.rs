//! Owns what lies between two hosts: a list of nodes. `[client, Delay, Drop, Reorder, Duplicate, Corrupt, Mtu, server]`.
//!
//! A frame enters at one end and is handed from node to node; each may pass it on, keep it, damage it, or answer it. A node
//! has no clock: it is told the time, and says when it wants to be told again.

use std::collections::VecDeque;

/// Which way a frame goes. The client is at the left end of the list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// From host 0 to host 1.
    Right,
    /// From host 1 to host 0.
    Left,
}

impl Way {
    /// The way of frames that this host sends.
    pub fn from_host(host: usize) -> Self {
        if host == 0 { Way::Right } else { Way::Left }
    }
    /// The host that it leads to.
    pub fn host(self) -> usize {
        match self {
            Way::Right => 1,
            Way::Left => 0,
        }
    }
    /// As an index.
    pub fn index(self) -> usize {
        match self {
            Way::Right => 0,
            Way::Left => 1,
        }
    }
    /// The other way.
    pub fn back(self) -> Self {
        match self {
            Way::Right => Way::Left,
            Way::Left => Way::Right,
        }
    }
}

/// Where a node puts what goes on.
pub type Out<'a> = &'a mut dyn FnMut(Way, Vec<u8>);

/// One thing that happens to frames on their way.
pub trait Node {
    /// What it is called in a trace.
    fn name(&self) -> &'static str;
    /// A frame comes in, going `way`.
    fn take(&mut self, now_us: u64, way: Way, frame: Vec<u8>, out: Out<'_>);
    /// The time that [`due_us`](Self::due_us) spoke of has come.
    fn step(&mut self, now_us: u64, out: Out<'_>) {
        let _ = (now_us, out);
    }
    /// When it wants to be stepped; `None` if nothing waits in it. May change with every `take` and `step`.
    fn due_us(&self) -> Option<u64> {
        None
    }
    /// No frame of a host, or made to look like one's, waits in it.
    fn is_quiet(&self) -> bool {
        self.due_us().is_none()
    }
}

/// The list.
#[derive(Default)]
pub struct Network {
    nodes: Vec<Box<dyn Node>>,
    /// Frames between nodes: position `i` lies before node `i`.
    moving: VecDeque<(usize, Way, Vec<u8>)>,
    arrived: [VecDeque<Vec<u8>>; 2],
}

impl Network {
    /// A network of these nodes, from host 0 to host 1.
    pub fn new(nodes: Vec<Box<dyn Node>>) -> Self {
        Network { nodes, ..Network::default() }
    }

    /// Host `from` sends a frame.
    pub fn send(&mut self, now_us: u64, from: usize, frame: Vec<u8>) {
        let at = if from == 0 { 0 } else { self.nodes.len() };
        self.moving.push_back((at, Way::from_host(from), frame));
        self.settle(now_us);
    }

    /// What is due by now moves on.
    pub fn step(&mut self, now_us: u64) {
        for i in 0..self.nodes.len() {
            if self.nodes[i].due_us().is_some_and(|at| at <= now_us) {
                let moving = &mut self.moving;
                self.nodes[i].step(now_us, &mut |way, frame| moving.push_back((i + 1 - way.index(), way, frame)));
                self.settle(now_us);
            }
        }
    }

    fn settle(&mut self, now_us: u64) {
        while let Some((at, way, frame)) = self.moving.pop_front() {
            let node = match way {
                Way::Right => at,
                Way::Left => at.wrapping_sub(1),
            };
            let moving = &mut self.moving;
            match self.nodes.get_mut(node) {
                Some(next) => next
                    .take(now_us, way, frame, &mut |way, frame| moving.push_back((node + 1 - way.index(), way, frame))),
                None => self.arrived[way.host()].push_back(frame),
            }
        }
    }

    /// The next frame that has reached `host`.
    pub fn receive(&mut self, host: usize) -> Option<Vec<u8>> {
        self.arrived[host].pop_front()
    }

    /// Puts a frame that could not be delivered back in its place.
    pub fn put_back(&mut self, host: usize, frame: Vec<u8>) {
        self.arrived[host].push_front(frame);
    }

    /// When to step again.
    pub fn due_us(&self) -> Option<u64> {
        self.nodes.iter().filter_map(|node| node.due_us()).min()
    }

    /// Nothing is under way.
    pub fn is_quiet(&self) -> bool {
        self.nodes.iter().all(|node| node.is_quiet()) && self.arrived.iter().all(VecDeque::is_empty)
    }

    /// The names of the nodes, for traces.
    pub fn names(&self) -> Vec<&'static str> {
        self.nodes.iter().map(|node| node.name()).collect()
    }
}
