//! Owns reading: text in packetdrill's notation becomes a [`Script`], or one sentence that says which line is wrong and why.

use crate::packet::{IcmpKind, IcmpPacket, Packet, TcpOption, TcpPacket, Unreachable, codepoint, flags};
use crate::script::{Action, Call, Event, Script, Setting, When};

/// Reads a script. `name` is for messages.
pub fn parse(name: &str, text: &str) -> Result<Script, String> {
    let mut script = Script { name: name.to_owned(), settings: Vec::new(), events: Vec::new() };
    let mut in_comment = false;
    let mut comment_from = 0;
    for (i, line) in text.lines().enumerate() {
        let line_no = i + 1;
        let was_in_comment = in_comment;
        let code = without_comments(line, &mut in_comment);
        if in_comment && (!was_in_comment || line.contains("*/")) {
            comment_from = line_no;
        }
        let code = code.trim();
        if code.is_empty() {
            continue;
        }
        let at = |e: String| format!("{name}:{line_no}: {e}\n    {}", line.trim());
        if let Some(setting) = code.strip_prefix("--") {
            let (key, value) = setting.split_once('=').ok_or_else(|| at("a setting is written --name=value".into()))?;
            script.settings.push(Setting { line: line_no, name: key.trim().into(), value: value.trim().into() });
            continue;
        }
        let (when, body) = time(code).map_err(at)?;
        let action = action(body).map_err(at)?;
        if when == When::SamePoll && (script.events.is_empty() || matches!(action, Action::Outbound(_))) {
            return Err(at("'&' joins what the peer or the application does to the line before".into()));
        }
        script.events.push(Event { line: line_no, text: code.to_owned(), when, action });
    }
    if in_comment {
        return Err(format!("{name}:{comment_from}: the comment does not end"));
    }
    if script.events.is_empty() {
        return Err(format!("{name}: nothing happens in this script"));
    }
    Ok(script)
}

fn without_comments(line: &str, in_comment: &mut bool) -> String {
    if !*in_comment && line.trim_start().starts_with('#') {
        return String::new();
    }
    let mut code = String::new();
    let mut rest = line;
    loop {
        if *in_comment {
            let Some(end) = rest.find("*/") else { return code };
            rest = &rest[end + 2..];
            *in_comment = false;
        }
        match (rest.find("//"), rest.find("/*")) {
            (Some(line_comment), block) if block.is_none_or(|b| line_comment < b) => {
                code.push_str(&rest[..line_comment]);
                return code;
            }
            (_, Some(block)) => {
                code.push_str(&rest[..block]);
                rest = &rest[block + 2..];
                *in_comment = true;
            }
            _ => {
                code.push_str(rest);
                return code;
            }
        }
    }
}

fn time(code: &str) -> Result<(When, &str), String> {
    let (word, body) = code.split_once(char::is_whitespace).unwrap_or((code, ""));
    let body = body.trim_start();
    let when = match word {
        "*" => When::Any,
        "&" => When::SamePoll,
        _ => {
            let (from, to) = word.split_once('~').unwrap_or((word, word));
            let relative = from.starts_with('+');
            let from = seconds(from)?;
            let to = seconds(to)?;
            if to < from {
                return Err(format!("the range '{word}' ends before it begins"));
            }
            if relative { When::After(from, to) } else { When::At(from, to) }
        }
    };
    Ok((when, body))
}

fn seconds(word: &str) -> Result<u64, String> {
    let number = word.strip_prefix('+').unwrap_or(word);
    let wrong = || format!("'{word}' is no time: write seconds, as +.1 or 2.5");
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.len() > 6 {
        return Err(wrong());
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| wrong())? };
    let fraction: u64 = format!("{fraction:0<6}").parse().map_err(|_| wrong())?;
    Ok(whole * 1_000_000 + fraction)
}

fn action(body: &str) -> Result<Action, String> {
    if let Some(packet) = body.strip_prefix('<') {
        return Ok(Action::Inbound(self::packet(packet.trim(), true)?));
    }
    if let Some(packet) = body.strip_prefix('>') {
        return Ok(Action::Outbound(self::packet(packet.trim(), false)?));
    }
    call(body).map(Action::Call)
}

fn call(body: &str) -> Result<Call, String> {
    let open = body.find('(').ok_or("neither a packet ('<', '>') nor a call")?;
    let close = matching(body, open).ok_or("the call has no closing parenthesis")?;
    let rest = body[close + 1..].trim();
    let result = match rest.strip_prefix('=') {
        Some(result) => {
            // packetdrill allows the words of perror() behind the error's name.
            let result = result.split('(').next().unwrap_or_default();
            Some(result.split_whitespace().collect::<Vec<_>>().join(" "))
        }
        None if rest.is_empty() => None,
        None => return Err(format!("'{rest}' is no result: write '= 0' or '= -1 EAGAIN'")),
    };
    Ok(Call { verb: body[..open].trim().into(), args: arguments(&body[open + 1..close]), result })
}

fn matching(text: &str, open: usize) -> Option<usize> {
    let mut depth = 0;
    for (i, c) in text.char_indices().skip_while(|(i, _)| *i < open) {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(i);
        }
    }
    None
}

fn arguments(text: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut depth = 0;
    let mut start = 0;
    for (i, c) in text.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                all.push(text[start..i].trim().to_owned());
                start = i + 1;
            }
            _ => {}
        }
    }
    let last = text[start..].trim();
    if !last.is_empty() {
        all.push(last.to_owned());
    }
    all
}

fn number<T: std::str::FromStr>(word: Option<&str>, what: &str) -> Result<T, String> {
    let word = word.ok_or_else(|| format!("{what} is missing"))?;
    word.parse().map_err(|_| format!("'{word}' is no {what}"))
}

fn packet(text: &str, inbound: bool) -> Result<Packet, String> {
    let (text, options) = match text.split_once('<') {
        None => (text, Some(Vec::new())),
        Some((head, tail)) => {
            let inside = tail.trim().strip_suffix('>').ok_or("the options have no closing '>'")?;
            (head, options(inside)?)
        }
    };
    let mut words = text.split_whitespace().peekable();
    let flow = match words.peek().and_then(|w| w.strip_prefix('#')) {
        Some(flow) => {
            words.next();
            number(Some(flow), "number of a connection")?
        }
        None => 0,
    };
    if words.peek() == Some(&"icmp") {
        words.next();
        if options.is_none_or(|options| !options.is_empty()) {
            return Err("an ICMP message has no options".into());
        }
        return icmp(flow, words).map(Packet::Icmp);
    }
    let ecn = words.peek().and_then(|word| codepoint(word));
    if ecn.is_some() {
        words.next();
    }
    let ecn = ecn.unwrap_or(0);
    let letters = words.next().ok_or("the packet is empty")?;
    let flags = if letters == "-" { flags("") } else { flags(letters) };
    let flags = flags.ok_or_else(|| format!("'{letters}' are no flags: write letters of SFRP.UEW, or - for none"))?;
    let (seq, len) = range(words.next().ok_or("seq:end(length) is missing")?)?;
    let mut tcp = TcpPacket { flow, ecn, flags, seq, len, ack: 0, window: None, urgent: None, options };
    let mut has_ack = false;
    while let Some(word) = words.next() {
        match word {
            "ack" => {
                tcp.ack = number(words.next(), "acknowledgment number")?;
                has_ack = true;
            }
            "win" => tcp.window = Some(number(words.next(), "window")?),
            "urg" => tcp.urgent = Some(number(words.next(), "urgent pointer")?),
            other => return Err(format!("'{other}' is not understood: expected ack, win, urg or <options>")),
        }
    }
    if has_ack != flags.ack() {
        return Err("the flag '.' and an acknowledgment number go together".into());
    }
    if inbound && tcp.window.is_none() && !flags.rst() {
        return Err("a packet of the peer needs a window: win N".into());
    }
    if inbound && tcp.options.is_none() {
        return Err("<...> is for packets of ours: say which options the peer sends".into());
    }
    Ok(Packet::Tcp(tcp))
}

fn range(word: &str) -> Result<(u32, u32), String> {
    let wrong = || format!("'{word}' is no range of sequence numbers: write seq:end(length)");
    let (seq, rest) = word.split_once(':').ok_or_else(wrong)?;
    let (end, rest) = rest.split_once('(').ok_or_else(wrong)?;
    let len = rest.strip_suffix(')').ok_or_else(wrong)?;
    let [seq, end, len] = [seq, end, len].map(|w| w.parse::<u32>());
    let (seq, end, len) = (seq.map_err(|_| wrong())?, end.map_err(|_| wrong())?, len.map_err(|_| wrong())?);
    if seq.wrapping_add(len) != end {
        return Err(format!("'{word}' does not add up"));
    }
    Ok((seq, len))
}

fn options(inside: &str) -> Result<Option<Vec<TcpOption>>, String> {
    if inside.trim() == "..." {
        return Ok(None);
    }
    inside.split(',').map(|text| option(text.trim())).collect::<Result<_, _>>().map(Some)
}

fn option(text: &str) -> Result<TcpOption, String> {
    let mut words = text.split_whitespace();
    let option = match words.next().unwrap_or_default() {
        "nop" => TcpOption::Nop,
        "eol" => TcpOption::Eol,
        "mss" => TcpOption::Mss(number(words.next(), "MSS")?),
        "wscale" => TcpOption::Scale(number(words.next(), "window scale")?),
        "sackOK" => TcpOption::SackOk,
        "TS" => {
            let mut after = |name: &str| match words.next() {
                Some(word) if word == name => number(words.next(), "timestamp"),
                _ => Err("timestamps are written: TS val 1 ecr 2".to_owned()),
            };
            TcpOption::Timestamps(after("val")?, after("ecr")?)
        }
        "sack" => {
            let block = |word: &str| {
                let (from, to) =
                    word.split_once(':').ok_or_else(|| format!("'{word}' is no SACK block: write from:to"))?;
                Ok((number(Some(from), "sequence number")?, number(Some(to), "sequence number")?))
            };
            TcpOption::Sack(words.by_ref().map(block).collect::<Result<_, String>>()?)
        }
        "raw" => {
            let digits: String = words.by_ref().collect();
            if !digits.len().is_multiple_of(2) {
                return Err("raw is followed by hexadecimal digits, two for each byte".into());
            }
            let pairs = digits
                .as_bytes()
                .chunks(2)
                .map(|pair| std::str::from_utf8(pair).ok().and_then(|p| u8::from_str_radix(p, 16).ok()));
            TcpOption::Raw(pairs.collect::<Option<_>>().ok_or("raw is followed by hexadecimal digits")?)
        }
        other => {
            return Err(format!("'{other}' is no option: expected mss, wscale, sackOK, sack, TS, nop, eol or raw"));
        }
    };
    match words.next() {
        Some(word) => Err(format!("'{word}' in '{text}' is too much: options are told apart by commas")),
        None => Ok(option),
    }
}

fn icmp<'a>(flow: u16, words: impl Iterator<Item = &'a str>) -> Result<IcmpPacket, String> {
    let words: Vec<&str> = words.collect();
    let (quoted, said) = words.split_last().ok_or("the ICMP message is empty")?;
    let quoted = quoted
        .strip_prefix('[')
        .and_then(|q| q.strip_suffix(']'))
        .ok_or("the quoted segment is written [seq:end(length)]")?;
    let (seq, len) = range(quoted)?;
    let kind = match said {
        ["unreachable", "frag_needed", "mtu", mtu] | ["packet_too_big", "mtu", mtu] => {
            IcmpKind::TooBig(number(Some(mtu), "MTU")?)
        }
        ["unreachable", "code", code] => IcmpKind::Unreachable(Unreachable::Code(number(Some(code), "code")?)),
        ["unreachable", "net_unreachable"] => IcmpKind::Unreachable(Unreachable::Net),
        ["unreachable", "host_unreachable"] => IcmpKind::Unreachable(Unreachable::Host),
        ["unreachable", "protocol_unreachable"] => IcmpKind::Unreachable(Unreachable::Protocol),
        ["unreachable", "port_unreachable"] => IcmpKind::Unreachable(Unreachable::Port),
        ["time_exceeded"] => IcmpKind::TimeExceeded,
        _ => return Err(format!("'{}' is no ICMP message that is known here", said.join(" "))),
    };
    Ok(IcmpPacket { flow, kind, seq, len })
}

#[cfg(test)]
mod tests;
