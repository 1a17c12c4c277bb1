//! Owns the log: what is said on stderr beside a command's own words, as `LANEWAY_LOG` asks for it.
//!
//! Nothing is said per packet: events come from where a stack starts, listens, is asked and stops, and from what a lane
//! says once a second at the most. Nobody waits for who reads the log, least of all a lane: see [`aside`](crate::aside).

use crate::aside::Aside;
use crate::failure::Failure;
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// What asks for more, or less, than warnings.
pub const VARIABLE: &str = "LANEWAY_LOG";

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
/// Who says anything.
const TARGETS: [&str; 2] = ["laneway", "laneway_stack"];

/// Begins to say what the environment asks for; warnings if it asks for nothing. What it gives is to be finished in the end.
pub fn begin() -> Result<Aside, Failure> {
    let text = match std::env::var(VARIABLE) {
        Ok(text) => text,
        Err(std::env::VarError::NotPresent) => String::new(),
        Err(std::env::VarError::NotUnicode(_)) => return Err(Failure::Misuse(wrong("it is not UTF-8"))),
    };
    let filter = filter(&text).map_err(|what| Failure::Misuse(wrong(&what)))?;
    let failed = |error: &dyn std::fmt::Display| Failure::Failed(format!("the log cannot be begun: {error}"));
    let missed = |lines| format!("laneway: {lines} lines of the log were lost here, because nobody read it in time\n");
    let aside = Aside::start("log", std::io::stderr(), missed).map_err(|error| failed(&error))?;
    let writer = aside.clone();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(move || writer.clone())
        .with_ansi(std::io::stderr().is_terminal())
        .try_init()
        .map_err(|error| failed(&error))?;
    Ok(aside)
}

fn wrong(what: &str) -> String {
    format!(
        "{VARIABLE} cannot be understood: {what}; right is a level ({}), or TARGET=LEVEL, several with commas between them: \
         {VARIABLE}=info, {VARIABLE}=warn,laneway_stack=debug",
        LEVELS.join(", ")
    )
}

/// The filter that a text means, or what is wrong with it.
fn filter(text: &str) -> Result<EnvFilter, String> {
    let directives: Vec<&str> = text.split(',').map(str::trim).filter(|directive| !directive.is_empty()).collect();
    directives.iter().try_for_each(|directive| check(directive))?;
    let builder = EnvFilter::builder().with_default_directive(LevelFilter::WARN.into());
    builder.parse(directives.join(",")).map_err(|error| format!("'{text}': {error}"))
}

/// The parser takes a misspelt level for the name of a target of which everything is wanted, and then says nothing at all.
fn check(directive: &str) -> Result<(), String> {
    // Spans and their fields are left to the parser.
    if directive.contains(['[', ']', '{', '}']) {
        return Ok(());
    }
    let is_level = |word: &str| {
        LEVELS.contains(&word.to_lowercase().as_str()) || matches!(word, "0" | "1" | "2" | "3" | "4" | "5")
    };
    let (target, level) = match directive.split_once('=') {
        Some((target, level)) => (target, Some(level)),
        None if is_level(directive) => return Ok(()),
        None => (directive, None),
    };
    if let Some(level) = level
        && !is_level(level)
    {
        return Err(format!("'{level}' in '{directive}' is no level{}", near(level, &LEVELS)));
    }
    let name = target.split("::").next().unwrap_or_default();
    if TARGETS.contains(&name) {
        return Ok(());
    }
    let (kind, known): (_, &[&str]) = match level {
        Some(_) => ("no target", &TARGETS),
        None => ("neither a level nor a target", &[&LEVELS[..], &TARGETS[..]].concat()),
    };
    Err(format!("'{target}' is {kind}{}", near(target, known)))
}

/// ` (did you mean …?)`, if something is near.
fn near(word: &str, known: &[&str]) -> String {
    let nearest = known.iter().map(|name| (strsim::damerau_levenshtein(word, name), *name)).min();
    match nearest {
        Some((distance, name)) if distance <= 1 + word.len() / 3 => format!(" (did you mean '{name}'?)"),
        _ if known.len() <= TARGETS.len() => format!(" (there are {})", known.join(" and ")),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_right() {
        for text in [
            "",
            "info",
            "INFO",
            "off",
            "3",
            " warn , laneway_stack=debug",
            "laneway",
            "laneway::control=trace",
            "laneway_stack[lane{id=3}]=debug",
        ] {
            assert!(filter(text).is_ok(), "{text}: {:?}", filter(text).err());
        }
    }

    #[test]
    fn nothing_asked_for_means_warnings() {
        assert_eq!(filter("").expect("it is right").max_level_hint(), Some(LevelFilter::WARN));
        assert_eq!(filter("laneway_stack=debug").expect("it is right").max_level_hint(), Some(LevelFilter::DEBUG));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, says) in [
            ("wran", "'wran' is neither a level nor a target (did you mean 'warn'?)"),
            ("verbose", "'verbose' is neither a level nor a target"),
            ("laneway=loud", "'loud' in 'laneway=loud' is no level"),
            ("info,lanewaystack=debug", "'lanewaystack' is no target (did you mean 'laneway_stack'?)"),
            ("hyper=debug", "'hyper' is no target (there are laneway and laneway_stack)"),
            ("laneway_stack=", "'' in 'laneway_stack=' is no level"),
            ("laneway[lane=debug", "'laneway[lane=debug'"),
        ] {
            let said = filter(text).expect_err(text);
            assert!(said.starts_with(says), "{text}: {said}");
        }
    }
}
