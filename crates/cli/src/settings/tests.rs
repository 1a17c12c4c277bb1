use super::*;

fn messages(text: &str) -> Vec<String> {
    parse(Path::new("laneway.toml"), text).map(drop).expect_err("it should be refused")
}

#[test]
fn a_file_with_everything_is_right() {
    let mut text = String::from(
        "[interface]\ntun = \"lw0\"\naddr = [\"10.9.0.2/24\", \"fd09::2/64\"]\nhost_addr = \"10.9.0.1/24\"\ngateway = []\nlanes = 2\nmtu = 1_500\nspin = \"50us\"\ncontrol = \"none\"\n[sysctl]\n",
    );
    // What is shown can be read back: every tunable with its default.
    for tunable in TUNABLES {
        let value = show(&(tunable.get)(&Config::default()));
        text += &format!("\"{}{}\" = {value}\n", tunable.kernel, tunable.name);
    }
    let settings = parse(Path::new("laneway.toml"), &text).expect("it is right");
    assert_eq!((settings.interface.lanes, settings.interface.mtu), (Some(2), Some(1_500)));
    assert_eq!(settings.interface.addr.len(), 2);
    assert_eq!(format!("{:?}", settings.config), format!("{:?}", Config::default()), "as it was shown");
    assert_eq!(settings.lines.len(), TUNABLES.len() + INTERFACE.len());
    assert_eq!(settings.source("mtu", "default"), "laneway.toml:7");
}

#[test]
fn values_are_in_the_kernels_units() {
    let text = "[sysctl]\ntcp_fin_timeout = 30\ntcp_keepalive_time = \"90m\"\ntcp_timestamps = 0\ntcp_rmem = [8192, 16384]\ntcp_invalid_ratelimit = 250\nmsl = \"500ms\"\n\"net.core.somaxconn\" = 9\n";
    let config = parse(Path::new("x"), text).expect("it is right").config;
    assert_eq!((config.tcp.tcp_fin_timeout_us, config.tcp.tcp_keepalive_time_us), (30 * S, 5_400 * S));
    assert_eq!((config.tcp.tcp_timestamps, config.tcp.tcp_rmem, config.somaxconn), (false, (8_192, 16_384), 9));
    assert_eq!((config.tcp.tcp_invalid_ratelimit_us, config.tcp.msl_us), (250 * MS, S / 2));
}

#[test]
fn the_longest_times_can_be_read_back() {
    let text = "[sysctl]\ntcp_keepalive_time = 2592000\ntcp_fin_timeout = 86400\n";
    let given = parse(Path::new("x"), text).expect("it is right");
    let shown: String =
        given.tunables().map(|(tunable, value, _)| format!("{} = {}\n", tunable.name, show(&value))).collect();
    assert!(shown.contains("tcp_keepalive_time = \"2592000s\""), "{shown}");
    let again = parse(Path::new("x"), &format!("[sysctl]\n{shown}")).expect("it is right");
    assert_eq!(format!("{:?}", again.config), format!("{:?}", given.config));
    assert_eq!(messages("[sysctl]\ntcp_keepalive_time = \"2592001s\"").len(), 1);
    assert_eq!(messages("[sysctl]\nmsl = \"99999999999999999999999s\"").len(), 1);
}

/// `sysctl` writes names with dots and without quotes, and its lines shall be right as they are.
#[test]
fn the_kernels_names_need_no_quotes() {
    for text in [
        "[sysctl]\nnet.ipv4.tcp_fin_timeout = 30\nnet.core.somaxconn = 9\n",
        "[sysctl.net.ipv4]\ntcp_fin_timeout = 30\n[sysctl.net.core]\nsomaxconn = 9\n",
        "[sysctl]\n\"net.ipv4.tcp_fin_timeout\" = 30\nnet.core = { somaxconn = 9 }\n",
    ] {
        let settings = parse(Path::new("x"), text).expect("it is right");
        assert_eq!((settings.config.tcp.tcp_fin_timeout_us, settings.config.somaxconn), (30 * S, 9), "{text}");
    }
    let settings = parse(Path::new("x"), "[sysctl]\n\nnet.ipv4.tcp_sack = 0").expect("it is right");
    assert_eq!(settings.lines["tcp_sack"], 3);
    for (text, says) in [
        ("net.ipv4.tcp_sack = 1", "laneway.toml:1: 'net.ipv4.tcp_sack' stands in no section: put it under [sysctl]"),
        (
            "[sysctl]\nnet.ipv4.tcp_sac = 1",
            "laneway.toml:2: there is no setting 'net.ipv4.tcp_sac'; did you mean 'tcp_sack'?",
        ),
        (
            "[sysctl]\ntcp_sack = 1\nmsl = 1\nnet.ipv4.tcp_sack = 1",
            "laneway.toml:4: net.ipv4.tcp_sack is given in line 2 already: remove one",
        ),
        (
            "[sysctl]\nnet.ipv4.tcp_sack = 1\nmsl = 1\ntcp_sack = 0",
            "laneway.toml:4: tcp_sack is given in line 2 already: remove one",
        ),
        ("[net]", "laneway.toml:1: [net] is no section; there are interface, sysctl"),
    ] {
        assert_eq!(messages(text), [says], "{text}");
    }
    assert_eq!(messages("[sysctl]\nnet.ipv4 = {}").len(), 1);
}

#[test]
fn reserved_ports_are_written_as_the_kernel_does() {
    let read = |text: &str| {
        let settings = parse(Path::new("x"), &format!("[sysctl]\nip_local_reserved_ports = {text}"));
        settings.map(|settings| settings.config.ip_local_reserved_ports)
    };
    assert_eq!(read("\"8080, 9000-9002,8081\""), Ok(vec![8_080, 8_081, 9_000, 9_001, 9_002]));
    assert_eq!((read("[9, 7, 9]"), read("\"\""), read("[]")), (Ok(vec![7, 9]), Ok(vec![]), Ok(vec![])));
    for wrong in ["\"1,,2\"", "\"0\"", "\"9-8\"", "\"65536\"", "\"1-\"", "[0]", "80", "[\"80\"]", "true"] {
        let said = read(wrong).expect_err("it should be refused");
        assert!(said[0].contains("ip_local_reserved_ports must be ports from 1 to 65535"), "{wrong}: {said:?}");
    }
    assert_eq!(show_ports(&[1, 7, 8, 9, 65_534, 65_535]), "1,7-9,65534-65535");
    assert_eq!(read(&format!("\"{}\"", show_ports(&[1, 7, 8, 9]))), Ok(vec![1, 7, 8, 9]));
}

/// Nobody shall learn only from `serve` that it cannot be.
#[test]
fn what_a_stack_would_refuse_is_refused_with_its_line() {
    let addr = "[interface]\naddr = [\"10.9.0.2/24\", \"fd09::2/64\"]\n";
    let with = |more: &str| format!("{addr}{more}");
    for (text, says) in [
        ("[interface]\ntun = \"a-name-that-is-too-long\"".to_owned(), "laneway.toml:2: tun: \"a-name"),
        ("[interface]\ntun = \"a/b\"".into(), "laneway.toml:2: tun: \"a/b\" is no interface name"),
        ("[interface]\ntun = \"\"".into(), "laneway.toml:2: tun: "),
        ("[interface]\ntun = \"lw%d\"".into(), "laneway.toml:2: tun: 'lw%d' leaves"),
        ("[interface]\n\naddr = \"10.9.0.0/24\"".into(), "laneway.toml:3: addr: 10.9.0.0/24 cannot be"),
        ("[interface]\naddr = \"224.0.0.1/24\"".into(), "laneway.toml:2: addr: 224.0.0.1/24 cannot be"),
        (
            "[interface]\naddr = [\"10.9.0.2/24\", \"10.9.0.2/16\"]".into(),
            "laneway.toml:2: addr: the address 10.9.0.2 is",
        ),
        (with("gateway = [\"10.9.0.1\", \"10.9.0.3\"]"), "laneway.toml:3: gateway: 10.9.0.1 and 10.9.0.3 cannot both"),
        (with("gateway = \"10.9.0.2\""), "laneway.toml:3: gateway: 10.9.0.2 cannot be the gateway, because it is the"),
        (with("gateway = \"10.9.0.255\""), "laneway.toml:3: gateway: 10.9.0.255 cannot be the gateway"),
        (with("gateway = \"10.8.0.1\""), "laneway.toml:3: gateway: 10.8.0.1 cannot be the gateway"),
        (with("host_addr = \"10.8.0.1/24\""), "laneway.toml:3: host_addr: 10.8.0.1 cannot be the kernel's end"),
        (with("host_addr = \"10.9.0.2/24\""), "laneway.toml:3: host_addr: 10.9.0.2 is given to both ends"),
        (with("control = \"\""), "laneway.toml:3: control: "),
        ("[interface]\ngateway = [\"10.9.0.1\", \"10.9.0.3\"]".into(), "laneway.toml:2: gateway: "),
    ] {
        let said = messages(&text);
        assert!(said.len() == 1 && said[0].starts_with(says), "{text}: {said:?}");
    }
    // Without addresses it is not known what is near; with them, the interface's own route is enough.
    for text in ["[interface]\ngateway = \"10.8.0.1\"", &with("gateway = [\"10.9.0.9\", \"fe80::1\"]")] {
        assert!(parse(Path::new("x"), text).is_ok(), "{text}");
    }
}

/// The messages, word by word: they are what a user meets first.
#[test]
fn what_is_wrong_is_said_with_its_place_and_what_would_be_right() {
    for (text, says) in [
        (
            "[sysctl]\ntcp_fin_timeuot = 3",
            "laneway.toml:2: there is no setting 'tcp_fin_timeuot'; did you mean 'tcp_fin_timeout'?",
        ),
        (
            "[sysctl]\n\"net.ipv4.somaxconn\" = 3",
            "laneway.toml:2: there is no setting 'net.ipv4.somaxconn'; did you mean 'somaxconn'?",
        ),
        ("[sysctl]\ncolour = 3", "laneway.toml:2: there is no setting 'colour'; `laneway config show` lists them all"),
        ("[interfaces]\ntun = \"x\"", "laneway.toml:1: [interfaces] is no section; did you mean 'interface'?"),
        ("[[sysctl]]", "laneway.toml:1: sysctl must be a section: write [sysctl] on a line of its own, and once"),
        (
            "interface = 1",
            "laneway.toml:1: interface must be a section: write [interface] on a line of its own, and once",
        ),
        ("tcp_sack = true", "laneway.toml:1: 'tcp_sack' stands in no section: put it under [sysctl]"),
        (
            "[sysctl]\n\ntcp_sack = \"yes\"",
            "laneway.toml:3: tcp_sack must be true or false (or 1 or 0, as the kernel writes it)",
        ),
        ("[sysctl]\nip_default_ttl = 256", "laneway.toml:2: ip_default_ttl must be a number from 1 to 255"),
        ("[sysctl]\nip_default_ttl = -1", "laneway.toml:2: ip_default_ttl must be a number from 1 to 255"),
        (
            "[sysctl]\ntcp_fin_timeout = \"soon\"",
            "laneway.toml:2: tcp_fin_timeout must be a time from 1s to 86400s, for example \"30s\"; a bare number is in seconds",
        ),
        (
            "[sysctl]\ntcp_rmem = [9000, 5000]",
            "laneway.toml:2: tcp_rmem must be two numbers from 4096 to 8388608, the smaller first: [4096, 8388608]",
        ),
        (
            "[sysctl]\nip_local_port_range = [0, 9]",
            "laneway.toml:2: ip_local_port_range must be two numbers from 1 to 65535, the smaller first: [1, 65535]",
        ),
        (
            "[sysctl]\ntcp_congestion_control = \"bbr\"",
            "laneway.toml:2: tcp_congestion_control is \"bbr\", and there is only \"cubic\" and \"reno\"",
        ),
        (
            "[interface]\naddr = \"10.0.0.2\"",
            "laneway.toml:2: addr '10.0.0.2' has no prefix length; write it as ADDRESS/BITS, for example 10.0.0.2/24 or fd00::2/64",
        ),
        (
            "[interface]\nspin = \"2s\"",
            "laneway.toml:2: spin must be a time from 0s to 1s, for example \"50us\"; a bare number is in milliseconds",
        ),
        ("[interface]\nadr = \"10.0.0.2/24\"", "laneway.toml:2: there is no setting 'adr'; did you mean 'addr'?"),
        (
            "tcp_sackk = 1",
            "laneway.toml:1: 'tcp_sackk' is no setting, and stands in no section; did you mean 'tcp_sack', under [sysctl]?",
        ),
        (
            "host_adr = \"10.0.0.1/24\"",
            "laneway.toml:1: 'host_adr' is no setting, and stands in no section; did you mean 'host_addr', under [interface]?",
        ),
        ("sysctll = 1", "laneway.toml:1: 'sysctll' is no section; did you mean 'sysctl'?"),
        ("something_else = 1", "laneway.toml:1: 'something_else' is no section; there are interface, sysctl"),
        ("[interface]\nlanes = 0", "laneway.toml:2: lanes must be a number from 1 to 256"),
        (
            "[interface]\ngateway = [\"here\"]",
            "laneway.toml:2: gateway 'here' is no IP address: write it as 10.9.0.1 or fd09::1",
        ),
    ] {
        assert_eq!(messages(text), [says], "{text}");
    }
    // Everything that is wrong is said at once, from the top of the file to its end.
    let file =
        "tun = \"a\"\n[sysctl]\na_setting_of_mine = 1\ntcp_sack = 2\n[else]\n[interface]\ntun = \"a b\"\nlanes = 0\n";
    let all = messages(file);
    let starts: Vec<_> = [1, 3, 4, 5, 7, 8].map(|line| format!("laneway.toml:{line}: ")).into();
    assert!(
        all.len() == starts.len() && all.iter().zip(&starts).all(|(said, start)| said.starts_with(start)),
        "{all:?}"
    );
    for text in ["[sysctl", "a = ", "[sysctl]\nmsl = 1\nmsl = 2", "\u{0}", "[sysctl]\nmsl = 99999999999999999999"] {
        let said = messages(text);
        assert!(said[0].starts_with("laneway.toml:"), "{said:?}");
    }
}

/// `docs/settings.md` names every setting, once and in this order, with its default; and the limits that it names are those that hold.
#[test]
fn the_page_says_what_there_is() {
    let page = include_str!("../../../../docs/settings.md");
    let table = |heading: &str| {
        let section = page.split_once(&format!("## The section `[{heading}]`")).expect("the section").1;
        let rows = section.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
        rows.take_while(|line| line.starts_with('|')).collect::<Vec<_>>()
    };
    let code = |cell: &'static str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let cells = |row: &'static str| row.split('|').skip(1).map(code).collect::<Vec<_>>();

    let rows: Vec<_> = table("sysctl").into_iter().map(cells).collect();
    let there: Vec<_> = TUNABLES.iter().map(|t| (t.name.to_owned(), show(&(t.get)(&Config::default())))).collect();
    let said: Vec<_> = rows.iter().map(|row| (row[0][0].clone(), row[1][0].clone())).collect();
    assert_eq!(said, there, "the settings and their defaults");

    let accepts = |name: &str, value: &str| parse(Path::new("x"), &format!("[sysctl]\n{name} = {value}\n")).is_ok();
    for row in rows {
        let ([name], [first, .., last]) = (row[0].as_slice(), row[2].as_slice()) else { continue };
        let is_pair = row[1][0].starts_with('[');
        let value = |value: &str| if is_pair { format!("[{value}, {value}]") } else { value.to_owned() };
        assert!(accepts(name, &value(first)) && accepts(name, &value(last)), "{name} from {first} to {last}");
        let beyond: Vec<String> = match (first.parse::<i64>(), last.parse::<i64>()) {
            (Ok(first), Ok(last)) => vec![(first - 1).to_string(), (last + 1).to_string()],
            _ if first.ends_with("s\"") => {
                let us = |text: &str| parse::any_duration_us(text.trim_matches('"')).expect("a time");
                let below = us(first).checked_sub(1).map(|us| format!("\"{us}us\""));
                below.into_iter().chain([format!("\"{}us\"", us(last) + 1)]).collect()
            }
            _ => vec!["\"neither\"".into()],
        };
        for beyond in beyond {
            assert!(!accepts(name, &value(&beyond)), "{name} is accepted as {beyond}");
        }
    }
    let named: Vec<_> = table("interface").into_iter().map(|row| cells(row)[0][0].clone()).collect();
    assert_eq!(named, INTERFACE, "the settings of the interface");
}
