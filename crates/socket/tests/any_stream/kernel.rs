//! Owns the kernel's end: what a seed sets of it, in a network namespace of that seed's own.

use crate::dice::Dice;
use crate::plan::Plan;
use std::fs;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

/// All of one setting.
#[derive(Debug)]
pub struct Kernel {
    /// Over IPv6.
    pub v6: bool,
    /// Of the interface.
    pub mtu: usize,
    /// Some of what it says is urgent (`MSG_OOB`). Here it stands where all else stands (RFC 6093).
    pub urges: bool,
    /// What becomes of the interface meanwhile, and how long after what was before.
    changes: Vec<(Duration, Change)>,
    /// Below `net.ipv4`, for both families.
    sysctls: Vec<(&'static str, String)>,
}

#[derive(Debug)]
enum Change {
    /// It carries so much from now on.
    Mtu(usize),
    /// It is down for so long. What is under way is lost.
    Down(Duration),
}

/// Each with what it is set to, the default among them.
const SETTINGS: &[(&str, &[&str])] = &[
    ("tcp_autocorking", &["0", "1"]),
    ("tcp_comp_sack_nr", &["0", "44"]),
    ("tcp_congestion_control", &["reno", "cubic", "bbr"]),
    ("tcp_dsack", &["0", "1", "1"]),
    ("tcp_early_retrans", &["0", "3"]),
    ("tcp_ecn", &["0", "1", "2"]),
    ("tcp_frto", &["0", "2"]),
    ("tcp_limit_output_bytes", &["4096", "4194304"]),
    ("tcp_min_tso_segs", &["1", "2"]),
    ("tcp_moderate_rcvbuf", &["0", "1"]),
    ("tcp_mtu_probing", &["0", "2"]),
    ("tcp_no_metrics_save", &["0", "1"]),
    ("tcp_notsent_lowat", &["2000", "4294967295"]),
    ("tcp_recovery", &["0", "1"]),
    ("tcp_reordering", &["1", "3", "3", "20"]),
    ("tcp_retrans_collapse", &["0", "1"]),
    ("tcp_sack", &["0", "1", "1"]),
    ("tcp_slow_start_after_idle", &["0", "1"]),
    ("tcp_stdurg", &["0", "1"]),
    ("tcp_thin_linear_timeouts", &["0", "1"]),
    ("tcp_window_scaling", &["0", "1", "1"]),
];

impl Kernel {
    pub fn from_seed(plan: &Plan) -> Kernel {
        let mut dice = Dice::new(!plan.seed);
        let v6 = dice.one_in(3);
        let least = if v6 { 1_280 } else { 576 };
        // Where memory is scarce, a segment of a wide link may be larger than what the window can be.
        let is_poor = plan.config.lane_mem < 1 << 20;
        let mtu = dice.pick(&[least, 1_400, 1_500, 1_500, 9_000, 65_000]).min(if is_poor { 1_500 } else { 65_000 });
        let mut sysctls: Vec<_> = SETTINGS.iter().map(|(name, of)| (*name, dice.pick(of).to_owned())).collect();
        // As with the plan's own: where something is lost, nothing else ends the back-off.
        let timestamps = if plan.loses() { "1" } else { dice.pick(&["0", "1", "2"]) };
        sysctls.push(("tcp_timestamps", timestamps.to_owned()));
        // Whoever has sent a cookie does not repeat it, and knows nothing of him whose answer is lost.
        let cookies = if plan.loses() { "1" } else { dice.pick(&["0", "1", "2"]) };
        sysctls.push(("tcp_syncookies", cookies.to_owned()));
        // A buffer with room for a few segments and no more opens its window by less than one, or closes it and never opens it again.
        let first = (16_384 << dice.below(5)).max(16 * mtu);
        sysctls.push(("tcp_rmem", format!("4096 {first} {}", first << dice.below(5))));
        let first = 4_096 << dice.below(6);
        sysctls.push(("tcp_wmem", format!("4096 {first} {}", first << dice.below(7))));
        let urges = dice.one_in(4);
        let mtus: Vec<usize> = [least, 1_300, 1_500, mtu].into_iter().filter(|to| *to <= mtu).collect();
        let change = |dice: &mut Dice| {
            // An interface that is down has no IPv6 addresses, and gets none back.
            let change = match dice.one_in(3) && plan.loses() && !v6 {
                true => Change::Down(Duration::from_millis(dice.below(300) as u64)),
                false => Change::Mtu(dice.pick(&mtus)),
            };
            (Duration::from_millis(dice.pick(&[0, 3, 30, 300])), change)
        };
        let changes = if dice.one_in(2) { (0..1 + dice.below(8)).map(|_| change(&mut dice)).collect() } else { vec![] };
        Kernel { v6, mtu, urges, changes, sysctls }
    }

    /// Has the interface become what it becomes.
    pub fn change(&self, interface: &str) {
        let set = |to: &[&str]| {
            let status = Command::new("ip").args(["link", "set", interface]).args(to).status();
            assert!(status.expect("ip, of iproute2, is there").success());
        };
        for (wait, change) in &self.changes {
            sleep(*wait);
            match change {
                Change::Mtu(mtu) => set(&["mtu", &mtu.to_string()]),
                Change::Down(time) => {
                    set(&["down"]);
                    sleep(*time);
                    set(&["up"]);
                }
            }
        }
    }

    /// Sets it in the namespace of the caller, as far as this kernel knows it.
    pub fn set(&self) {
        for (name, value) in &self.sysctls {
            let path = format!("/proc/sys/net/ipv4/{name}");
            // bbr is a module, and what is new is not everywhere.
            if let Err(error) = fs::write(&path, value) {
                eprintln!("{path} stays as it is, and is not {value}: {error}");
            }
        }
    }
}
