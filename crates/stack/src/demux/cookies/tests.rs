//! Whether the kernel answers as the lane would: one rule in two languages.

use super::*;
use crate::entropy::BootSecrets;
use crate::listing::tests::World;
use laneway_device::cookies_ebpf;
use laneway_proto::ip::output::{HeaderSpec, Template};
use laneway_proto::tcp::{Config, Cx};
use laneway_proto::time::Instant;
use laneway_wire::checksum::Sum;
use laneway_wire::flow::Address;
use laneway_wire::protocol;
use laneway_wire::tcp::{Flags, Header, Options, Segment, SeqNum, Timestamps, UnscaledWindow, WindowScale};
use proptest::prelude::*;
use proptest::test_runner::{Config as Cases, TestRunner};
use std::cell::{Cell, RefCell};

const LINK: usize = 14;

/// A packet with one TCP header, in an Ethernet frame.
fn frame(key: &FlowKey, header: &Header, marks: Marks) -> Vec<u8> {
    let ahead = Template::new(&HeaderSpec::new(key.local, key.remote, protocol::TCP)).marked(marks);
    let mut frame = vec![0; LINK + ahead.len() + header.len()];
    frame[12..LINK].copy_from_slice(if key.is_v4() { &[8, 0] } else { &[0x86, 0xdd] });
    let tcp = ahead.emit(&mut frame[LINK..], header.len());
    header.emit(tcp);
    let sum = ahead.pseudo(header.len()) + Sum::of(tcp);
    tcp[16..18].copy_from_slice(&sum.checksum());
    frame
}

fn ends() -> impl Strategy<Value = (Address, Address)> {
    prop_oneof![
        any::<([u8; 4], [u8; 4])>().prop_map(|(a, b)| (Address::from_v4(a), Address::from_v4(b))),
        any::<([u8; 16], [u8; 16])>().prop_map(|(a, b)| (Address::from_v6(a), Address::from_v6(b))),
    ]
}

fn options() -> impl Strategy<Value = Options> {
    let mss = prop_oneof![Just(None), any::<u16>().prop_map(Some), (1_200..1_500_u16).prop_map(Some)];
    let scale = proptest::option::of((0..20u8).prop_map(WindowScale::new));
    let stamp = proptest::option::of(any::<u32>().prop_map(|val| Timestamps { val, echo: 0 }));
    (mss, scale, any::<bool>(), stamp).prop_map(|(mss, window_scale, sack_permitted, timestamps)| Options {
        mss,
        window_scale,
        sack_permitted,
        timestamps,
        ..Options::NONE
    })
}

fn config() -> impl Strategy<Value = Config> {
    (any::<[bool; 3]>(), 0..3u8, 1_000..10_000_000_u32).prop_map(|([scaling, timestamps, sack], ecn, most)| Config {
        tcp_window_scaling: scaling,
        tcp_timestamps: timestamps,
        tcp_sack: sack,
        tcp_ecn: ecn,
        tcp_rmem: (most / 2, most),
        ..Config::default()
    })
}

/// As the lane says it of a SYN at this time.
fn by_lane(
    world: &mut World,
    syn: (&FlowKey, &Segment<'_>),
    mss: u16,
    config: &Config,
    secrets: &tcp::listen::Secrets,
    (now, marks): (Instant, Marks),
) -> Vec<u8> {
    let (key, segment) = syn;
    let header = world.server.seats[0].lane.tables(|tables| {
        let cx = Cx { now, config, pool: &mut tables.pool };
        listen::cookie_syn_ack(key, segment, mss, secrets, &cx)
    });
    frame(key, &header, marks)
}

#[test]
fn the_kernel_answers_as_the_lane_would() {
    let (tried, world) = (Cell::new(0), RefCell::new(World::new()));
    let syn =
        (any::<u32>(), options(), prop_oneof![Just(Flags::NONE), Just(Flags::ECE), Just(Flags::ECE | Flags::CWR)]);
    let marks = (1..=255u8, 0..64u8).prop_map(|(hop_limit, dscp)| Marks { hop_limit, dscp_ecn: dscp << 2 });
    let cases = (ends(), any::<[u16; 2]>(), syn, (config(), marks), any::<u16>(), any::<u64>(), 0..1u64 << 50);
    let outcome = TestRunner::new(Cases::with_cases(200)).run(
        &cases,
        |(
            (local, remote),
            [local_port, remote_port],
            (seq, options, more_flags),
            (config, marks),
            mss,
            seed,
            now_us,
        )| {
            let key = FlowKey { local, remote, local_port, remote_port };
            let secrets = BootSecrets::from_seed(seed).tcp;
            let header = Header {
                src_port: remote_port,
                dst_port: local_port,
                seq: SeqNum::new(seq),
                ack: SeqNum::new(0),
                flags: Flags::SYN | more_flags,
                window: UnscaledWindow::new(1),
                urgent: 0,
                options,
            };
            let syn = frame(&key.reversed(), &header, Marks::NONE);
            let segment = Segment::parse(&syn[syn.len() - header.len()..]).unwrap();
            let how = answer(&key, mss, &config, &secrets, (now_us, marks));
            let back = match cookies_ebpf::tried_out(&how, [0; 6], &syn) {
                Ok(back) => back.expect("it is a plain SYN to an endpoint that is overrun"),
                Err(error) => {
                    let needed = error.raw_os_error() == Some(1);
                    return Err(TestCaseError::reject(if needed { "needs root" } else { "the kernel refuses" }));
                }
            };
            tried.set(tried.get() + 1);
            // The program is asked a little after it has been told the time. A timestamp of which the low bits are something else moves on every 64 ms.
            let is_it = (0..1_000).any(|ms| {
                let now = Instant::from_us(now_us + ms * 1_000);
                by_lane(&mut world.borrow_mut(), (&key, &segment), mss, &config, &secrets, (now, marks)) == back
            });
            prop_assert!(is_it, "{:02x?} was answered with {:02x?}", &syn[LINK..], &back[LINK..]);
            Ok(())
        },
    );
    if tried.get() == 0 {
        assert!(std::env::var_os("CI").is_none(), "the kernel has to run programs in CI: {outcome:?}");
        eprintln!(
            "SKIPPED the_kernel_answers_as_the_lane_would: the kernel's programs need root, or CAP_BPF and CAP_NET_ADMIN"
        );
        return;
    }
    outcome.unwrap();
}
