use super::*;

fn one(line: &str) -> Event {
    parse("test", line).unwrap().events.remove(0)
}

fn error(line: &str) -> String {
    parse("test", line).unwrap_err()
}

#[test]
fn a_packet_is_printed_as_it_was_written() {
    for text in [
        "S 0:0(0) win 65535 <mss 1460,sackOK,TS val 1 ecr 0,nop,wscale 7>",
        "S. 0:0(0) ack 1 win 1000",
        "FP. 1:1001(1000) ack 1 win 257 <nop,nop,sack 2001:3001 4001:5001>",
        "RU. 7:7(0) ack 9 win 0 urg 5 <raw fe04abcd,eol>",
        "#2 . 1:1(0) ack 1 win 0 <...>",
        "- 1:1(0) win 3",
    ] {
        let packet = packet(text, false).unwrap();
        assert_eq!(packet.to_string(), text);
    }
}

#[test]
fn times() {
    assert_eq!(one("+.1 idle()").when, When::After(100_000, 100_000));
    assert_eq!(one("1.5 idle()").when, When::At(1_500_000, 1_500_000));
    assert_eq!(one("+.2~+.35 idle()").when, When::After(200_000, 350_000));
    assert_eq!(one("* > . 1:1(0) ack 1").when, When::Any);
    assert!(error("+x idle()").contains("is no time"));
    assert!(error("+.2~+.1 idle()").contains("ends before it begins"));
    assert!(error("& idle()").contains("joins"));
}

#[test]
fn comments_and_settings() {
    let script = parse("test", "// one\n# two\n--mtu=900\n/* three\n four */ +0 idle() // five\n").unwrap();
    assert_eq!(script.settings[0].value, "900");
    assert_eq!((script.events.len(), script.events[0].line), (1, 5));
}

/// All behind it would be left out, and the script would hold for what little is before it.
#[test]
fn a_comment_that_does_not_end_is_a_mistake() {
    assert!(error("+0 idle()\n/* from here on\n+0 idle()\n").contains("test:2: the comment does not end"));
    assert!(error("+0 idle() /* one */ /* two").contains("test:1: the comment does not end"));
}

#[test]
fn calls() {
    let Action::Call(call) = one("+0 setsockopt(4, SOL_TCP, TCP_USER_TIMEOUT, [3000], 4) = 0").action else { panic!() };
    assert_eq!(
        (call.verb.as_str(), call.args[3].as_str(), call.result.as_deref()),
        ("setsockopt", "[3000]", Some("0"))
    );
    let Action::Call(call) = one("+0 read(4, ..., 10) = -1  EAGAIN (Resource temporarily unavailable)").action else {
        panic!()
    };
    assert_eq!(call.result.as_deref(), Some("-1 EAGAIN"));
}

#[test]
fn icmp_messages() {
    let Action::Inbound(Packet::Icmp(icmp)) = one("+0 < icmp unreachable frag_needed mtu 1200 [1:1461(1460)]").action
    else {
        panic!()
    };
    assert_eq!((icmp.kind, icmp.seq, icmp.len), (IcmpKind::TooBig(1200), 1, 1460));
}

#[test]
fn mistakes_are_named_with_their_line() {
    assert!(error("\n+0 < . 1:5(3) ack 1 win 5").starts_with("test:2: '1:5(3)' does not add up"));
    assert!(error("+0 < . 1:1(0) ack 1").contains("needs a window"));
    assert!(error("+0 < S 1:1(0) ack 1 win 5").contains("go together"));
    assert!(error("+0 > X 1:1(0)").contains("are no flags"));
    assert!(error("+0 > S 1:1(0) <mss>").contains("MSS is missing"));
    assert!(error("+0 < S 1:1(0) win 1 <...>").contains("for packets of ours"));
    assert!(error("").contains("nothing happens"));
}

/// What is written is either understood or refused: a forgotten comma would take an option out of the segment without a word.
#[test]
fn what_an_option_does_not_take_is_a_mistake() {
    for options in ["mss 1460 sackOK", "sackOK nop", "nop nop", "eol 1", "wscale 7 8", "TS val 1 ecr 2 3", "raw fe4"] {
        let said = error(&format!("+0 < S 0:0(0) win 1 <{options}>"));
        assert!(said.contains("is too much") || said.contains("hexadecimal"), "{options}: {said}");
    }
    assert!(error("+0 < icmp time_exceeded [1:1(0)] <mss 1>").contains("no options"));
}
