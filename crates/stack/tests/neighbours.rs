//! A host on an Ethernet whose other end is a script: who is asked for, who is given up, and who is asked whether it is still there.

use laneway_device::memory::{self, LinkConfig, LinkQueue, LinkRx, LinkTx};
use laneway_device::{Medium, Rx, Tx, TxMeta};
use laneway_proto::discard::Discard;
use laneway_proto::ethernet;
use laneway_proto::ip::output::{self, HeaderSpec};
use laneway_proto::time::Instant;
use laneway_stack::app::{App, ConnId, Context};
use laneway_stack::config::Config;
use laneway_stack::control::Network;
use laneway_stack::counters::Mib;
use laneway_stack::entropy::BootSecrets;
use laneway_stack::host::Host;
use laneway_wire::arp::{Operation, Packet};
use laneway_wire::checksum::Sum;
use laneway_wire::ethernet::{EtherType, Mac};
use laneway_wire::flow::Address;
use laneway_wire::protocol;

struct Nobody;
impl App for Nobody {
    fn on_data(&mut self, _: &mut Context<'_>, _: ConnId, data: &[u8]) -> usize {
        data.len()
    }
}

const HERE: Address = Address::from_v4([10, 0, 0, 1]);
const NEIGHBOUR: Address = Address::from_v4([10, 0, 0, 2]);

/// What the host says.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    /// Who has this address? To all, or to one.
    Who(Address, bool),
    /// An echo reply, to this link address.
    Echo(Address, Mac),
}

struct World {
    host: Host<LinkRx, LinkTx, Nobody>,
    other: LinkQueue,
    mac: Mac,
    now: Instant,
}

impl World {
    fn new() -> Self {
        let (queues, mut other) = memory::link(LinkConfig { medium: Medium::Ethernet, ..LinkConfig::default() });
        let (now, mac) = (Instant::from_us(3_600_000_000), Mac(queues[0].tx.capabilities().mac));
        let network = Network { addresses: vec!["10.0.0.1/16".parse().unwrap()], gateways: vec![] };
        let secrets = BootSecrets::from_seed(1);
        let host = Host::new(Config::default(), &network, &secrets, queues, now, |_| Nobody).unwrap();
        World { host, other: other.remove(0), mac, now }
    }

    fn send(&mut self, ethertype: EtherType, from: Mac, bytes: &[u8]) {
        let frame = [&ethernet::template(self.mac, from, ethertype)[..], bytes].concat();
        let tx = &mut self.other.tx;
        tx.reserve(frame.len()).expect("there is room").copy_from_slice(&frame);
        tx.commit(frame.len(), TxMeta::default());
        tx.flush();
    }

    fn ping(&mut self, from: Address) {
        let mut echo = [8, 0, 0, 0, 0, 1, 0, 1];
        let sum = Sum::of(&echo).checksum();
        echo[2..4].copy_from_slice(&sum);
        let spec = HeaderSpec::new(from, HERE, protocol::ICMPV4);
        let mut packet = vec![0; spec.len() + echo.len()];
        output::emit(&spec, &mut packet, echo.len());
        packet[spec.len()..].copy_from_slice(&echo);
        self.send(EtherType::IPV4, Mac([2, 0, 0, 0, 0, 9]), &packet);
    }

    fn arp(&mut self, operation: Operation, sender: Address, sender_mac: Mac) {
        let mut bytes = [0; 28];
        Packet { operation, sender_mac, sender, target_mac: self.mac, target: HERE }.emit(&mut bytes);
        self.send(EtherType::ARP, sender_mac, &bytes);
    }

    /// Time passes in steps of a millisecond, or of a tenth of a second where nothing is due sooner.
    fn wait(&mut self, ms: u64) -> Vec<Said> {
        let (until, mut said) = (self.now.after_us(ms * 1_000), Vec::new());
        while self.now < until {
            for _ in 0..4 {
                self.host.turn(self.now);
            }
            let frames = self.other.rx.poll(64);
            said.extend((0..frames).filter_map(|i| heard(self.other.rx.frame(i).bytes)));
            self.other.rx.release();
            self.now = self.now.after_us(if until.since_us(self.now) > 1_000_000 { 100_000 } else { 1_000 });
        }
        said
    }

    fn discarded(&mut self, discard: Discard) -> u64 {
        self.host.counters().discarded(discard)
    }
}

fn heard(frame: &[u8]) -> Option<Said> {
    let (to, bytes) = (Mac(frame[..6].try_into().expect("a header")), &frame[14..]);
    if frame[12..14] == [8, 6] {
        let packet = Packet::parse(bytes).expect("we can write ARP");
        return (packet.operation == Operation::Request).then_some(Said::Who(packet.target, to == Mac::BROADCAST));
    }
    let at = Address::from_v4(bytes[16..20].try_into().expect("a header"));
    (bytes[9] == protocol::ICMPV4).then_some(Said::Echo(at, to))
}

fn stranger(number: u16) -> Address {
    let [upper, lower] = (1_000 + number).to_be_bytes();
    Address::from_v4([10, 0, upper, lower])
}

const MAC: Mac = Mac([2, 0, 0, 0, 0, 2]);

/// A neighbour that was asked for, has answered, and has had its echo.
fn acquainted() -> World {
    let mut world = World::new();
    world.ping(NEIGHBOUR);
    assert_eq!(world.wait(50), [Said::Who(NEIGHBOUR, true)]);
    world.arp(Operation::Reply, NEIGHBOUR, MAC);
    assert_eq!(world.wait(50), [Said::Echo(NEIGHBOUR, MAC)]);
    world
}

#[test]
fn who_does_not_answer_is_asked_three_times_and_given_up() {
    let mut world = World::new();
    world.ping(stranger(1));
    let asked = world.wait(2_900);
    assert_eq!(asked, [0; 3].map(|_| Said::Who(stranger(1), true)));
    assert_eq!(world.discarded(Discard::NeighbourUnreachable), 0, "the third may still be answered");
    assert_eq!(world.wait(400), []);
    assert_eq!(world.discarded(Discard::NeighbourUnreachable), 1, "what waited for it is gone");
    // It comes to life hours later: nothing that is that old is said to it.
    assert_eq!(world.wait(5_000), []);
    world.arp(Operation::Request, stranger(1), MAC);
    assert_eq!(world.wait(50), []);
}

/// Anybody can write a source address that nobody has, and each is asked for.
#[test]
fn strangers_that_nobody_is_do_not_keep_a_neighbour_out() {
    let mut world = World::new();
    let mut asked = 0;
    for number in 0..600 {
        world.ping(stranger(number));
        asked += world.wait(1).len();
    }
    assert!((256..300).contains(&asked), "{asked}: as many as may be waited for, and those asked again");
    world.wait(1_000);
    world.ping(NEIGHBOUR);
    assert!(world.wait(50).contains(&Said::Who(NEIGHBOUR, true)), "nobody else is asked for any more");
    world.arp(Operation::Reply, NEIGHBOUR, MAC);
    assert!(world.wait(50).contains(&Said::Echo(NEIGHBOUR, MAC)));
}

/// RFC 4861 section 7.3: what was true half a minute ago is used, and asked about where nothing else says that it still is.
#[test]
fn a_neighbour_that_is_used_is_asked_whether_it_is_still_there() {
    let mut world = acquainted();
    world.wait(31_000);
    world.ping(NEIGHBOUR);
    assert_eq!(world.wait(4_900), [Said::Echo(NEIGHBOUR, MAC)], "it is believed for five seconds more");
    assert_eq!(world.wait(500), [Said::Who(NEIGHBOUR, false)]);
    world.arp(Operation::Reply, NEIGHBOUR, MAC);
    assert_eq!(world.wait(10_000), [], "it has answered");
    // The next time it has gone, and somebody else has its address.
    world.wait(31_000);
    world.ping(NEIGHBOUR);
    let said = world.wait(9_000);
    assert_eq!(said[1..], [0; 3].map(|_| Said::Who(NEIGHBOUR, false)), "{said:?}");
    world.ping(NEIGHBOUR);
    assert_eq!(world.wait(50), [Said::Who(NEIGHBOUR, true)]);
    let other = Mac([2, 0, 0, 0, 0, 7]);
    world.arp(Operation::Reply, NEIGHBOUR, other);
    assert_eq!(world.wait(50), [Said::Echo(NEIGHBOUR, other)]);
}

#[test]
fn somebody_else_who_has_our_address_is_counted() {
    let mut world = acquainted();
    world.arp(Operation::Request, HERE, MAC);
    world.wait(50);
    assert_eq!(world.discarded(Discard::NeighbourConflict), 1);
    assert_eq!(world.host.counters().get(Mib::IcmpOutMsgs), 1);
}

/// The control plane is late, and everybody on the link asks for us.
#[test]
fn a_flood_of_questions_leaves_room_for_answers_of_the_lane() {
    let mut world = World::new();
    for number in 0..2_000 {
        world.arp(Operation::Request, stranger(number), MAC);
        world.host.seats[0].turn(world.now);
    }
    let passed_over = world.discarded(Discard::SteerRingFull);
    assert!((1_000..1_500).contains(&passed_over), "{passed_over}");
    world.host.listen("0.0.0.0:80".parse().unwrap(), 16, world.now).expect("the lane says that it listens");
}
