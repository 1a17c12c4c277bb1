//! Owns what is said about a program: the findings, what is allowed, the table and the JSON.

use super::allow::Exception;
use super::types::Place;
use serde_json::{Value, json};
use std::fmt;

/// Which rule.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// Elements of an array share a line.
    Array,
    /// Fields of a structure share a line.
    Structure,
}

/// One place where a lock or atomic shares a line.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Which rule.
    pub kind: Kind,
    /// Higher is probably hotter.
    pub score: u64,
    /// In our own code, not in the toolchain's or a registry's.
    pub ours: bool,
    /// The name that an exception uses.
    pub name: String,
    /// Path of the holder.
    pub module: String,
    /// The element's type, or the structure.
    pub of: String,
    /// Bytes of it.
    pub size: u64,
    /// Bytes of the whole array, if known.
    pub total: Option<u64>,
    /// Elements that touch one line.
    pub per_line: Option<u64>,
    /// The lock or atomic.
    pub field: String,
    /// Where it lies in the element or structure.
    pub offset: u64,
    /// Fields in its line, those that hurt most first.
    pub beside: Vec<String>,
    /// Where it is declared.
    pub place: Option<Place>,
    /// Instances of one generic type.
    pub instances: u64,
    /// The reason, if it is on the list.
    pub allowed: Option<String>,
}

/// Everything about one program.
#[derive(Debug)]
pub struct Report {
    /// Which.
    pub binary: String,
    /// Bytes of a line.
    pub line: u64,
    /// Types that were looked at.
    pub types: usize,
    /// Hottest first.
    pub findings: Vec<Finding>,
    /// Pointers to locks, which may be arrays: name and what is known.
    pub maybe: Vec<(String, String)>,
}

impl Report {
    /// Applies the list; says which of its entries matched nothing.
    pub fn allow(&mut self, exceptions: &[Exception]) -> Vec<String> {
        let mut unused = Vec::new();
        for exception in exceptions {
            let mut is_used = false;
            for finding in &mut self.findings {
                let structure = finding.name.rsplit_once('.').map_or("", |(structure, _)| structure);
                if exception.name == finding.name || exception.name == structure {
                    is_used = true;
                    finding.allowed = Some(exception.reason.clone());
                }
            }
            if !is_used {
                unused.push(exception.name.clone());
            }
        }
        unused
    }

    /// Findings in our code without a reason.
    pub fn open(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.ours && finding.allowed.is_none())
    }

    /// For machines.
    pub fn json(&self) -> Value {
        let finding = |finding: &Finding| {
            json!({
                "rule": if finding.kind == Kind::Array { "array" } else { "structure" },
                "name": finding.name, "type": finding.of, "size_bytes": finding.size, "total_bytes": finding.total,
                "per_line": finding.per_line, "field": finding.field, "offset_bytes": finding.offset, "beside": finding.beside,
                "file": finding.place.as_ref().map(|place| place.file.to_string()),
                "line": finding.place.as_ref().map(|place| place.line).filter(|line| *line > 0),
                "ours": finding.ours, "score": finding.score, "instances": finding.instances, "allowed": finding.allowed,
            })
        };
        json!({
            "binary": self.binary, "line_bytes": self.line, "types": self.types, "open": self.open().count(),
            "findings": self.findings.iter().map(finding).collect::<Vec<_>>(),
            "maybe": self.maybe.iter().map(|(name, what)| json!({"name": name, "what": what})).collect::<Vec<_>>(),
        })
    }

    /// For people: `all` lists what is not ours too, else it is only counted.
    pub fn table(&self, all: bool) -> String {
        let mut text = String::new();
        let section = |text: &mut String, title: &str, findings: &[&Finding]| {
            if findings.is_empty() {
                return;
            }
            text.push_str(&format!(
                "{title}\n  {:>5} {:>6} {:>8} {:>8}  where\n",
                "score", "size", "total", "per line"
            ));
            findings.iter().for_each(|finding| text.push_str(&format!("{finding}")));
        };
        let open: Vec<&Finding> = self.open().collect();
        let arrays: Vec<&Finding> = open.iter().copied().filter(|finding| finding.kind == Kind::Array).collect();
        let structures: Vec<&Finding> =
            open.iter().copied().filter(|finding| finding.kind == Kind::Structure).collect();
        section(&mut text, "Arrays whose elements hold a lock or an atomic and share a line:", &arrays);
        section(
            &mut text,
            "Structures in which a lock or an atomic shares a line with other fields, hottest guess first:",
            &structures,
        );
        let foreign: Vec<&Finding> = self.findings.iter().filter(|finding| !finding.ours).collect();
        if all {
            let allowed: Vec<&Finding> =
                self.findings.iter().filter(|finding| finding.ours && finding.allowed.is_some()).collect();
            section(&mut text, "Allowed, with a reason:", &allowed);
            section(&mut text, "Not ours (toolchain, registries, system headers):", &foreign);
        }
        if !self.maybe.is_empty() {
            text.push_str("Perhaps arrays of locks; the debug information does not say how long they are:\n");
            self.maybe.iter().for_each(|(name, what)| text.push_str(&format!("    {name} {what}\n")));
        }
        let allowed = self.findings.iter().filter(|finding| finding.ours && finding.allowed.is_some()).count();
        text.push_str(&format!(
            "{}: {} types, lines of {} bytes: {} found, {allowed} allowed with a reason, {} not ours{}\n",
            self.binary,
            self.types,
            self.line,
            open.len(),
            foreign.len(),
            if foreign.is_empty() || all { "" } else { " (--all lists them)" }
        ));
        text
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dash = |number: Option<u64>| number.map_or_else(|| "-".into(), |number| number.to_string());
        writeln!(
            f,
            "  {:>5} {:>6} {:>8} {:>8}  {}",
            self.score,
            self.size,
            dash(self.total),
            dash(self.per_line),
            self.name
        )?;
        let field =
            if self.field.is_empty() { String::new() } else { format!(", in it {} at {}", self.field, self.offset) };
        match self.kind {
            Kind::Array if self.total.is_some() => writeln!(f, "{:33}elements {}{field}", "", self.of)?,
            Kind::Array => writeln!(f, "{:33}as many elements as the program makes, {}{field}", "", self.of)?,
            Kind::Structure => {
                writeln!(f, "{:33}{} at {} beside {}", "", self.field, self.offset, self.beside.join(", "))?
            }
        }
        if let Some(place) = &self.place {
            let line = if place.line > 0 { format!(":{}", place.line) } else { String::new() };
            writeln!(f, "{:33}{}{line}", "", place.file)?;
        }
        if self.instances > 1 {
            writeln!(f, "{:33}{} instances, the worst is {}", "", self.instances, self.of)?;
        }
        if let Some(reason) = &self.allowed {
            writeln!(f, "{:33}allowed: {reason}", "")?;
        }
        Ok(())
    }
}
