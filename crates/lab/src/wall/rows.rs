//! Owns a result of a wall: one number with its variant, its unit, where it comes from and what it was measured at.

use crate::bench::machine;
use crate::bench::report::median;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use std::fmt;

/// How a number came about. Whose it is if not ours is another question: [`Row::published`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// It depends on the machine and on what else runs there: taken with a clock, or counted of what comes about by timing, as retries do.
    Measured,
    /// Counted: it comes out the same everywhere.
    Counted,
    /// Calculated from other numbers under assumptions.
    Model,
}

/// A place on an axis.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// Occupancy in percent, a number of cores, …
    Number(#[serde(serialize_with = "whole_if_whole")] f64),
    /// A name.
    Text(String),
}

impl Value {
    /// As a number, for a picture.
    pub fn number(&self) -> Option<f64> {
        match self {
            Value::Number(number) => Some(*number),
            Value::Text(_) => None,
        }
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Value::Number(number)
    }
}
impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Value::Number(number.into())
    }
}
impl From<usize> for Value {
    fn from(number: usize) -> Self {
        Value::Number(number as f64)
    }
}
impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Value::Text(text.to_owned())
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Number(number) => write!(f, "{number}"),
            Value::Text(text) => f.write_str(text),
        }
    }
}

/// 3 rather than 3.0: most values are counts.
fn whole_if_whole<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if number.fract() == 0.0 && number.abs() < 9e15 {
        serializer.serialize_i64(*number as i64)
    } else {
        serializer.serialize_f64(*number)
    }
}

/// The axis of rows that were not taken where this runs.
const MACHINE: &str = "machine";

/// One number.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Which way of doing it.
    pub variant: String,
    /// What was measured.
    pub metric: String,
    /// How much.
    pub value: f64,
    /// Of what.
    pub unit: String,
    /// Where it comes from.
    pub source: Source,
    /// What it was measured at, in the order in which it was said.
    pub axes: Vec<(String, Value)>,
}

impl Row {
    /// A number with no axis yet.
    pub fn new(variant: &str, metric: &str, value: f64, unit: &str, source: Source) -> Self {
        Row {
            variant: variant.to_owned(),
            metric: metric.to_owned(),
            value,
            unit: unit.to_owned(),
            source,
            axes: Vec::new(),
        }
    }

    /// A number that depends on time.
    pub fn measured(variant: &str, metric: &str, value: f64, unit: &str) -> Self {
        Row::new(variant, metric, value, unit, Source::Measured)
    }

    /// A number counted.
    pub fn counted(variant: &str, metric: &str, value: f64, unit: &str) -> Self {
        Row::new(variant, metric, value, unit, Source::Counted)
    }

    /// A number calculated.
    pub fn model(variant: &str, metric: &str, value: f64, unit: &str) -> Self {
        Row::new(variant, metric, value, unit, Source::Model)
    }

    /// The same at a place on an axis. An axis is named once, and not like a field that every row has.
    #[must_use]
    pub fn at(mut self, axis: &str, value: impl Into<Value>) -> Self {
        let taken = ["variant", "metric", "value", "unit", "source"].contains(&axis);
        assert!(!taken && self.axis(axis).is_none(), "'{axis}' is in this row already");
        self.axes.push((axis.to_owned(), value.into()));
        self
    }

    /// The same of several rounds: the median, and beside it, as `…_min` and `…_max`, the least and the most.
    #[must_use]
    pub fn of_rounds(self, values: &[f64]) -> [Row; 3] {
        let named = |suffix: &str, value| Row { metric: format!("{}{suffix}", self.metric), value, ..self.clone() };
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        [named("", median(values.iter().copied())), named("_min", least), named("_max", most)]
    }

    /// The same as a number of a document: of another machine, which the axis `machine` names.
    #[must_use]
    pub fn published(self, machine: &str) -> Self {
        self.at(MACHINE, format!("{machine}, as published").as_str())
    }

    /// Where it is on an axis.
    pub fn axis(&self, name: &str) -> Option<&Value> {
        self.axes.iter().find(|(axis, _)| axis == name).map(|(_, value)| value)
    }
}

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(5 + self.axes.len()))?;
        map.serialize_entry("variant", &self.variant)?;
        map.serialize_entry("metric", &self.metric)?;
        map.serialize_entry("value", &Value::Number(self.value))?;
        map.serialize_entry("unit", &self.unit)?;
        map.serialize_entry("source", &self.source)?;
        for (axis, value) in &self.axes {
            map.serialize_entry(axis, value)?;
        }
        map.end()
    }
}

/// All results of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Rows {
    /// What one operation is, where all rows have the same.
    pub unit: Option<String>,
    /// Where it ran, but for rows that have a machine of their own.
    pub machine: String,
    /// The results, in the order of their measurement.
    pub rows: Vec<Row>,
    /// For a reader: what was left out and why, what to bear in mind.
    #[serde(skip)]
    pub remarks: Vec<String>,
}

impl Rows {
    /// Nothing yet, on this machine.
    pub fn new(unit: Option<&str>) -> Self {
        Rows { unit: unit.map(str::to_owned), machine: machine::describe(), rows: Vec::new(), remarks: Vec::new() }
    }

    /// One more.
    pub fn push(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// Something that a reader should know. It is also said on stderr, where a program's user sees it.
    pub fn remark(&mut self, text: impl Into<String>) {
        let text = text.into();
        crate::output::remark(format_args!("{text}"));
        self.remarks.push(text);
    }

    /// Whether something that was promised is kept. It is said in words as well, and [`finish`](super::finish) fails if one is not.
    pub fn bar(&mut self, variant: &str, bar: &str, holds: bool, source: Source, words: &str) {
        let row = Row::new(variant, "holds", f64::from(u8::from(holds)), "1 = yes", source);
        self.push(row.at("bar", bar));
        self.remark(format!("{variant}, {bar}: {}: {words}", if holds { "holds" } else { "MISSED" }));
    }

    /// Whether there are numbers of other machines.
    pub fn has_published(&self) -> bool {
        self.rows.iter().any(|row| row.axis(MACHINE).is_some())
    }

    /// What was promised and is not kept.
    pub fn missed(&self) -> Vec<String> {
        let missed = self.rows.iter().filter(|row| row.metric == "holds" && row.value == 0.0);
        missed.filter_map(|row| Some(format!("{}, {}", row.variant, row.axis("bar")?))).collect()
    }

    /// Those of some metrics, for the table beneath a picture.
    pub fn only(&self, metrics: &[&str]) -> Vec<&Row> {
        self.rows.iter().filter(|row| metrics.contains(&row.metric.as_str())).collect()
    }

    /// Those at one place on an axis, as results of their own.
    pub fn at(&self, axis: &str, at: impl Into<Value>) -> Rows {
        let at = at.into();
        let rows = self.rows.iter().filter(|row| row.axis(axis) == Some(&at)).cloned().collect();
        Rows { unit: self.unit.clone(), machine: self.machine.clone(), rows, remarks: Vec::new() }
    }

    /// The value of a metric of a variant at a place on an axis.
    pub fn value(&self, variant: &str, metric: &str, axis: &str, at: impl Into<Value>) -> Option<f64> {
        let at = at.into();
        let is = |row: &&Row| row.variant == variant && row.metric == metric && row.axis(axis) == Some(&at);
        self.rows.iter().find(is).map(|row| row.value)
    }

    /// For a program.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("rows are plain data")
    }

    /// For a reader: a line per variant and place on the axes, a column per metric.
    pub fn table(&self) -> String {
        let mut out = match &self.unit {
            Some(unit) => format!("{unit} on {}\n", self.machine),
            None => format!("on {}\n", self.machine),
        };
        for table in pivot(&self.rows.iter().collect::<Vec<_>>()) {
            out.push('\n');
            out += &table.text();
        }
        if self.rows.iter().any(|row| row.source == Source::Model) {
            out += "\n* from the model, not measured\n";
        }
        if self.has_published() {
            out += "\nas published: of the machine that is named, not of this one\n";
        }
        if !self.remarks.is_empty() {
            out.push('\n');
        }
        for remark in &self.remarks {
            out += remark;
            out.push('\n');
        }
        out
    }
}

/// Rows turned: what is in a line of a table.
pub struct Table {
    /// `variant`, the axes, then the metrics with their units.
    pub head: Vec<String>,
    /// As many cells as there are in the head.
    pub lines: Vec<Vec<String>>,
}

impl Table {
    /// In columns.
    pub fn text(&self) -> String {
        let width = |column: usize| {
            std::iter::once(&self.head).chain(&self.lines).map(|line| line[column].chars().count()).max()
        };
        let widths: Vec<usize> = (0..self.head.len()).map(|column| width(column).unwrap_or(0)).collect();
        let mut out = String::new();
        for line in std::iter::once(&self.head).chain(&self.lines) {
            let cells: Vec<String> = line
                .iter()
                .zip(&widths)
                .enumerate()
                .map(|(i, (cell, &width))| if i == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") })
                .collect();
            out += cells.join("  ").trim_end();
            out.push('\n');
        }
        out
    }
}

/// One table for each set of axes, because what was measured at different things is not comparable.
pub fn pivot(rows: &[&Row]) -> Vec<Table> {
    let axes_of = |row: &Row| row.axes.iter().map(|(axis, _)| axis.clone()).collect::<Vec<_>>();
    let mut kinds: Vec<Vec<String>> = Vec::new();
    for row in rows {
        if !kinds.contains(&axes_of(row)) {
            kinds.push(axes_of(row));
        }
    }
    kinds.into_iter().map(|axes| one_table(&axes, rows.iter().copied().filter(|row| axes_of(row) == axes))).collect()
}

fn one_table<'a>(axes: &[String], rows: impl Iterator<Item = &'a Row>) -> Table {
    let mut metrics: Vec<(String, String)> = Vec::new();
    let mut lines: Vec<(Vec<String>, Vec<String>)> = Vec::new();
    for row in rows {
        let metric = (row.metric.clone(), row.unit.clone());
        let column = metrics.iter().position(|one| *one == metric).unwrap_or_else(|| {
            metrics.push(metric);
            metrics.len() - 1
        });
        let mut key = vec![row.variant.clone()];
        key.extend(row.axes.iter().map(|(_, value)| value.to_string()));
        // A metric that comes twice at one place is a further line.
        let free = |(other, cells): &(Vec<String>, Vec<String>)| {
            *other == key && cells.get(column).is_none_or(String::is_empty)
        };
        let at = lines.iter().position(free).unwrap_or_else(|| {
            lines.push((key, Vec::new()));
            lines.len() - 1
        });
        let cells = &mut lines[at].1;
        cells.resize(cells.len().max(column + 1), String::new());
        cells[column] = brief(row.value) + if row.source == Source::Model { "*" } else { "" };
    }
    let mut head = vec!["variant".to_owned()];
    head.extend(axes.iter().cloned());
    head.extend(metrics.iter().map(|(metric, unit)| heading(metric, unit)));
    let lines = lines.into_iter().map(|(mut key, mut cells)| {
        cells.resize(metrics.len(), String::new());
        key.extend(cells.into_iter().map(|cell| if cell.is_empty() { "-".to_owned() } else { cell }));
        key
    });
    Table { head, lines: lines.collect() }
}

/// The unit is said unless the name says it.
fn heading(metric: &str, unit: &str) -> String {
    let said = unit.is_empty() || metric.ends_with(&format!("_{unit}")) || metric.contains("_per_");
    if said { metric.to_owned() } else { format!("{metric} [{unit}]") }
}

/// Four figures or whole numbers, thousands grouped.
pub fn brief(value: f64) -> String {
    match value.abs() {
        _ if !value.is_finite() => "-".to_owned(),
        size if value.fract() == 0.0 || size >= 1_000.0 => {
            let sign = if value < 0.0 { "-" } else { "" };
            format!("{sign}{}", crate::bench::report::grouped(size))
        }
        size if size >= 100.0 => format!("{value:.1}"),
        size if size >= 10.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Rows {
        let mut rows = Rows::new(Some("connects"));
        for (variant, occupancy, probes) in [("b0", 0.0, 1.0), ("b0", 90.0, 27.25), ("lane", 90.0, 1.0)] {
            rows.push(Row::counted(variant, "probes_per_connect", probes, "probes").at("occupancy", occupancy));
        }
        rows.push(Row::measured("b0", "p50_us", 1.5, "us").at("occupancy", 90.0));
        rows.push(Row::model("b0", "ns_per_lock", 4_000.0, "ns").at("cores", 24usize));
        rows
    }

    #[test]
    fn a_row_is_flat_in_json_and_whole_numbers_are_whole() {
        let json = serde_json::to_string(&rows().rows[0]).expect("our own JSON");
        let whole = r#"{"variant":"b0","metric":"probes_per_connect","value":1,"unit":"probes","source":"counted","occupancy":0}"#;
        assert_eq!(json, whole);
        let all: serde_json::Value = serde_json::from_str(&rows().json()).expect("our own JSON");
        assert_eq!(all["unit"], "connects");
        assert_eq!(all["rows"][1]["value"], 27.25);
        assert_eq!(all["rows"][4]["source"], "model");
        assert!(all["machine"].is_string());
        // What not all rows have in common is said to be nothing, and not left out.
        let all: serde_json::Value = serde_json::from_str(&Rows::new(None).json()).expect("our own JSON");
        assert_eq!(all.get("unit"), Some(&serde_json::Value::Null));
    }

    #[test]
    fn a_table_has_a_line_per_variant_and_place_and_one_kind_of_axes() {
        let rows = rows();
        let tables = pivot(&rows.rows.iter().collect::<Vec<_>>());
        assert_eq!(tables.len(), 2);
        assert_eq!(tables[0].head, ["variant", "occupancy", "probes_per_connect", "p50_us"]);
        assert_eq!(tables[0].lines, [["b0", "0", "1", "-"], ["b0", "90", "27.25", "1.500"], ["lane", "90", "1", "-"]]);
        assert_eq!(tables[1].lines, [["b0", "24", "4,000*"]]);
        let text = rows.table();
        assert!(text.contains("* from the model"), "{text}");
        assert!(text.lines().any(|line| line.split_whitespace().eq(["lane", "90", "1", "-"])), "{text}");
    }

    #[test]
    fn rounds_are_told_with_their_spread() {
        let rows = Row::measured("a", "us", f64::NAN, "us").at("lanes", 2u32).of_rounds(&[3.0, 1.0, 9.0]);
        let said = rows.map(|row| (row.metric, row.value, row.axes.len()));
        assert_eq!(said, [("us".into(), 3.0, 1), ("us_min".into(), 1.0, 1), ("us_max".into(), 9.0, 1)]);
    }

    #[test]
    fn a_number_of_a_document_names_its_machine() {
        let mut rows = rows();
        assert!(!rows.has_published());
        rows.push(Row::measured("before", "p50_us", 9.0, "us").published("Linux, 2013"));
        assert!(rows.has_published() && rows.table().contains("not of this one"));
        let json: serde_json::Value = serde_json::from_str(&rows.json()).expect("our own JSON");
        assert_eq!(json["rows"][5]["machine"], "Linux, 2013, as published");
    }

    #[test]
    fn what_is_measured_twice_at_one_place_is_shown_twice() {
        let twice = [Row::measured("a", "m", 1.0, "s"), Row::measured("a", "m", 2.0, "s")];
        assert_eq!(pivot(&twice.iter().collect::<Vec<_>>())[0].lines, [["a", "1"], ["a", "2"]]);
    }

    #[test]
    fn a_bar_is_kept_or_missed() {
        let mut rows = rows();
        rows.bar("a", "at most 64", true, Source::Counted, "63");
        assert!(rows.missed().is_empty());
        rows.bar("b", "at most 64", false, Source::Counted, "65");
        assert_eq!(rows.missed(), ["b, at most 64"]);
        assert!(rows.table().contains("b, at most 64: MISSED: 65"));
        assert_eq!(rows.value("a", "holds", "bar", "at most 64"), Some(1.0));
    }

    #[test]
    #[should_panic(expected = "in this row already")]
    fn an_axis_has_a_name_of_its_own() {
        let _ = Row::counted("a", "m", 1.0, "s").at("value", 1.0);
    }
}
