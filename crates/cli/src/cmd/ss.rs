//! `laneway ss`: the connections of a running stack, in the columns of `ss -tian`.

use crate::ask::{Out, Which};
use crate::failure::Failure;
use laneway::control::{Ask, PortsRow, STATE_FILTERS, SsInfo, SsRow};
use std::fmt::Write;
use std::net::SocketAddr;

/// Lists the connections of a running stack, in the columns of `ss -tian`.
///
/// Lanes are asked for one small page after another and stop for none of them. A connection that is there all the time is
/// shown at least once; one that moves on to another state meanwhile may be shown in both.
#[derive(clap::Args)]
#[command(after_help = EXAMPLE)]
pub struct Args {
    /// Everything: listeners, half-open and TIME-WAIT too.
    #[arg(short, long, conflicts_with_all = ["listening", "state"])]
    all: bool,
    /// Only listeners.
    #[arg(short, long, conflicts_with = "state")]
    listening: bool,
    /// Only this state, as `ss` names it in its filter; may be given more than once.
    #[arg(long, value_name = "STATE", value_parser = clap::builder::PossibleValuesParser::new(STATE_FILTERS))]
    state: Vec<String>,
    /// Leave out the second line of each connection.
    #[arg(short, long)]
    brief: bool,
    /// Instead: what is used of each lane's local ports, destination by destination (256 of each lane).
    #[arg(long, conflicts_with_all = ["all", "listening", "state", "brief"])]
    ports: bool,
    #[command(flatten)]
    which: Which,
    /// Say it as JSON, one object per line.
    #[arg(long)]
    json: bool,
}

const EXAMPLE: &str = "Examples:\n  laneway ss -a\n  laneway ss --state time-wait --name lw0\n  laneway ss --ports\n  laneway ss --json | jq 'select(.info.retrans > 0)'";

/// Lists.
pub fn run(args: Args) -> Result<(), Failure> {
    let mut client = args.which.connect()?;
    if args.ports {
        return ports(&args, &mut client);
    }
    // Whoever has real work goes first.
    let _ = rustix::process::setpriority_process(None, 19);
    let mut out = Out::new();
    if !args.json {
        out.line(format_args!(
            "{:<11}{:<8}{:<8}{:>23} {:>23}",
            "State", "Recv-Q", "Send-Q", "Local:Port", "Peer:Port"
        ))?;
    }
    for row in client.ask::<SsRow>(&Ask::Ss { states: wanted(&args) })? {
        let row = row?;
        if args.json {
            out.line(json(&row)?)?;
        } else {
            out.all(format_args!("{}", table(&row, args.brief)))?;
        }
    }
    out.flush()
}

/// What `ss` shows without an option are connections that are being used.
fn wanted(args: &Args) -> Vec<String> {
    let names: &[&str] = if args.all {
        &["all"]
    } else if args.listening {
        &["listening"]
    } else if !args.state.is_empty() {
        return args.state.clone();
    } else {
        &["established", "syn-sent", "fin-wait-1", "fin-wait-2", "close-wait", "last-ack", "closing"]
    };
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn json(row: &impl serde::Serialize) -> Result<String, Failure> {
    serde_json::to_string(row).map_err(|error| Failure::Failed(error.to_string()))
}

fn place(at: SocketAddr) -> String {
    let port = if at.port() == 0 { "*".to_owned() } else { at.port().to_string() };
    match at {
        SocketAddr::V4(at) => format!("{}:{port}", at.ip()),
        SocketAddr::V6(at) => format!("[{}]:{port}", at.ip()),
    }
}

/// One or two lines.
fn table(row: &SsRow, brief: bool) -> String {
    let any = SocketAddr::new(if row.local.is_ipv4() { [0; 4].into() } else { [0u8; 16].into() }, 0);
    let mut text = format!(
        "{:<11}{:<8}{:<8}{:>23} {:>23}",
        row.state,
        row.recv_q,
        row.send_q,
        place(row.local),
        place(row.peer.unwrap_or(any))
    );
    if let Some(timer) = &row.timer {
        let _ = write!(text, " timer:({},{},{})", timer.name, due(timer.due_ms), timer.retries);
    }
    if let Some(lane) = row.lane {
        let _ = write!(text, " lane:{lane}");
    }
    text.push('\n');
    if let Some(info) = row.info.as_ref().filter(|_| !brief) {
        let _ = writeln!(text, "\t {}", details(info));
    }
    text
}

/// As `ss` writes times of timers.
fn due(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms}ms"),
        1_000..60_000 => format!("{}.{:03}sec", ms / 1_000, ms % 1_000),
        _ => format!("{}min{}sec", ms / 60_000, ms / 1_000 % 60),
    }
}

fn ms(us: u32) -> f64 {
    f64::from(us) / 1e3
}

/// The second line, with the words of `ss -i`.
fn details(info: &SsInfo) -> String {
    let mut words = Vec::new();
    let mut say = |is: bool, word: String| {
        if is {
            words.push(word);
        }
    };
    let mss = u32::from(info.mss.max(1));
    say(info.ts, "ts".into());
    say(info.sack, "sack".into());
    say(info.ecn, "ecn".into());
    say(true, info.congestion.to_string());
    say(info.snd_wscale != 0 || info.rcv_wscale != 0, format!("wscale:{},{}", info.snd_wscale, info.rcv_wscale));
    say(true, format!("rto:{}", ms(info.rto_us)));
    if let Some(rtt) = info.rtt_us {
        say(true, format!("rtt:{}/{}", ms(rtt), ms(info.rttvar_us)));
    }
    say(true, format!("mss:{}", info.mss));
    say(true, format!("rcvmss:{}", info.rcvmss));
    say(true, format!("cwnd:{}", info.cwnd_bytes / mss));
    if let Some(ssthresh) = info.ssthresh_bytes {
        say(true, format!("ssthresh:{}", ssthresh / mss));
    }
    say(info.bytes_sent > 0, format!("bytes_sent:{}", info.bytes_sent));
    say(info.bytes_retrans > 0, format!("bytes_retrans:{}", info.bytes_retrans));
    say(info.bytes_acked > 0, format!("bytes_acked:{}", info.bytes_acked));
    say(info.bytes_received > 0, format!("bytes_received:{}", info.bytes_received));
    say(true, format!("segs_out:{}", info.segs_out));
    say(true, format!("segs_in:{}", info.segs_in));
    if let Some(rtt) = info.rtt_us.filter(|rtt| *rtt > 0) {
        let bps = u64::from(info.cwnd_bytes) * 8 * 1_000_000 / u64::from(rtt);
        say(true, format!("send {bps}bps"));
    }
    say(true, format!("lastrcv:{}", info.lastrcv_ms));
    say(true, format!("lastack:{}", info.lastack_ms));
    say(info.unacked_bytes > 0, format!("unacked:{}", info.unacked_bytes.div_ceil(mss)));
    say(info.retrans > 0, format!("retrans:{}/{}", info.retrans_out, info.retrans));
    say(info.phase != "open", info.phase.to_string());
    say(info.nodelay, "nodelay".into());
    say(true, format!("rcv_space:{}", info.rcv_space));
    say(info.notsent_bytes > 0, format!("notsent:{}", info.notsent_bytes));
    if let Some(minrtt) = info.minrtt_us {
        say(true, format!("minrtt:{}", ms(minrtt)));
    }
    say(true, format!("snd_wnd:{}", info.snd_wnd));
    words.join(" ")
}

fn ports(args: &Args, client: &mut laneway::control::Client) -> Result<(), Failure> {
    let mut out = Out::new();
    if !args.json {
        out.line(format_args!(
            "{:<6}{:<8}{:<8}{:<10}{:<10}{:<9}{:<16} {:>23}",
            "Lane", "Owned", "In-use", "TIME-WAIT", "Reserved", "Indexed", "Local", "Peer:Port"
        ))?;
    }
    for row in client.ask::<PortsRow>(&Ask::Ports {})? {
        let row = row?;
        if args.json {
            out.line(json(&row)?)?;
        } else {
            let indexed = if row.indexed { "yes" } else { "no" };
            out.line(format_args!(
                "{:<6}{:<8}{:<8}{:<10}{:<10}{indexed:<9}{:<16} {:>23}",
                row.lane,
                row.owned,
                row.in_use,
                row.time_wait,
                row.reserved,
                row.local.to_string(),
                place(row.peer)
            ))?;
        }
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> SsRow {
        serde_json::from_str(json).expect("a row")
    }

    #[test]
    fn lines_look_as_those_of_ss() {
        let row = parse(
            r#"{"state":"ESTAB","recv_q":0,"send_q":3000,"local":"10.0.0.1:80","peer":"10.0.0.2:43232","lane":0,
            "timer":{"name":"on","due_ms":1234,"retries":1},
            "info":{"ts":true,"sack":true,"nodelay":false,"congestion":"cubic","phase":"recovery","snd_wscale":7,
            "rcv_wscale":8,"rto_us":200100,"rtt_us":100,"rttvar_us":50,"minrtt_us":90,"mss":1448,"rcvmss":536,
            "cwnd_bytes":14480,"ssthresh_bytes":28960,"bytes_sent":5000,"bytes_retrans":1448,"bytes_acked":2000,
            "bytes_received":5,"segs_out":7,"segs_in":3,"retrans":2,"retrans_out":1,"unacked_bytes":3000,"notsent_bytes":700,
            "snd_wnd":131072,"rcv_space":65536,"lastack_ms":15,"lastrcv_ms":16}}"#,
        );
        assert_eq!(
            table(&row, false),
            "ESTAB      0       3000                10.0.0.1:80          10.0.0.2:43232 timer:(on,1.234sec,1) lane:0\n\
             \t ts sack cubic wscale:7,8 rto:200.1 rtt:0.1/0.05 mss:1448 rcvmss:536 cwnd:10 ssthresh:20 \
             bytes_sent:5000 bytes_retrans:1448 bytes_acked:2000 bytes_received:5 segs_out:7 segs_in:3 \
             send 1158400000bps lastrcv:16 lastack:15 unacked:3 retrans:1/2 recovery rcv_space:65536 notsent:700 \
             minrtt:0.09 snd_wnd:131072\n"
        );
        assert_eq!(table(&row, true).lines().count(), 1);
        let listener = parse(r#"{"state":"LISTEN","recv_q":1,"send_q":128,"local":"[::]:80"}"#);
        assert_eq!(
            table(&listener, false),
            "LISTEN     1       128                     [::]:80                  [::]:*\n"
        );
    }

    #[test]
    fn what_did_not_happen_is_not_said() {
        let new = info(r#"{"nodelay":true}"#);
        assert_eq!(
            details(&new),
            "cubic rto:200 mss:1448 rcvmss:536 cwnd:10 segs_out:0 segs_in:0 lastrcv:0 lastack:0 nodelay rcv_space:65536 snd_wnd:0"
        );
        let said = |changed: &str| {
            let (new, then) = (details(&new), details(&info(changed)));
            then.split(' ').filter(|word| !new.split(' ').any(|w| w == *word)).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(said(r#"{"ecn":true}"#), "ecn");
        assert_eq!(said(r#"{"snd_wscale":7}"#), "wscale:7,0");
        assert_eq!(said(r#"{"rcv_wscale":7}"#), "wscale:0,7");
        assert_eq!(said(r#"{"rtt_us":0}"#), "rtt:0/0", "a rate of so quick a path is no number");
        assert_eq!(said(r#"{"bytes_sent":1,"bytes_retrans":1}"#), "bytes_sent:1 bytes_retrans:1");
        assert_eq!(said(r#"{"bytes_acked":1,"bytes_received":1}"#), "bytes_acked:1 bytes_received:1");
        assert_eq!(said(r#"{"unacked_bytes":1,"retrans":1}"#), "unacked:1 retrans:0/1");
    }

    /// Of a connection over which nothing went yet, but for this.
    fn info(but: &str) -> SsInfo {
        let mut all: serde_json::Value = serde_json::from_str(
            r#"{"ts":false,"sack":false,"nodelay":false,"congestion":"cubic","phase":"open","snd_wscale":0,"rcv_wscale":0,
            "rto_us":200000,"rtt_us":null,"rttvar_us":0,"minrtt_us":null,"mss":1448,"rcvmss":536,"cwnd_bytes":14480,
            "ssthresh_bytes":null,"bytes_sent":0,"bytes_retrans":0,"bytes_acked":0,"bytes_received":0,"segs_out":0,
            "segs_in":0,"retrans":0,"retrans_out":0,"unacked_bytes":0,"snd_wnd":0,"rcv_space":65536,"lastack_ms":0,
            "lastrcv_ms":0}"#,
        )
        .expect("an object");
        let but: serde_json::Map<_, _> = serde_json::from_str(but).expect("members");
        all.as_object_mut().expect("an object").extend(but);
        serde_json::from_value(all).expect("an info")
    }

    #[test]
    fn times_of_timers() {
        assert_eq!((due(7), due(59_999), due(61_000)), ("7ms".into(), "59.999sec".into(), "1min1sec".into()));
    }
}
