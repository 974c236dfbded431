//! The figures, for people and for programs.

use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value as Json, json};

use crate::machine::Machine;
use crate::requests::Requests;

/// Something measured, or what it is measured against.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub(crate) enum Value {
    Time(Duration),
    Bytes(u64),
    Count(u64),
}

impl Value {
    fn unit(self) -> &'static str {
        match self {
            Self::Time(_) => "seconds",
            Self::Bytes(_) => "bytes",
            Self::Count(_) => "count",
        }
    }

    fn number(self) -> Json {
        match self {
            Self::Time(time) => json!(time.as_secs_f64()),
            Self::Bytes(number) | Self::Count(number) => json!(number),
        }
    }
}

impl Display for Value {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Time(time) => f.pad(&format!("{:.3} s", time.as_secs_f64())),
            Self::Bytes(bytes) => f.pad(&format!("{:.1} MB", *bytes as f64 / 1e6)),
            Self::Count(count) => f.pad(&count.to_string()),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Limit {
    Below(Value),
    AtMost(Value),
}

impl Limit {
    fn holds(self, measured: Value) -> bool {
        match self {
            Self::Below(limit) => measured < limit,
            Self::AtMost(limit) => measured <= limit,
        }
    }
}

impl Display for Limit {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Below(limit) => f.pad(&format!("< {limit}")),
            Self::AtMost(limit) => f.pad(&format!("≤ {limit}")),
        }
    }
}

/// One line of the table.
#[derive(Debug)]
pub(crate) struct Figure {
    what: String,
    measured: Value,
    limit: Option<Limit>,
    /// What the figure is the median of.
    samples: Vec<Duration>,
    notes: Vec<String>,
}

impl Figure {
    pub(crate) fn new(what: impl Into<String>, measured: Value) -> Self {
        Self { what: what.into(), measured, limit: None, samples: Vec::new(), notes: Vec::new() }
    }

    pub(crate) fn median(what: &str, samples: &[Duration]) -> Self {
        let range = samples.iter().min().zip(samples.iter().max());
        let notes = range.map(|(least, most)| {
            format!("median of {}, {} to {}", samples.len(), Value::Time(*least), Value::Time(*most))
        });
        let figure = Self::new(what, Value::Time(median(samples))).noting(notes);
        Self { samples: samples.to_owned(), ..figure }
    }

    pub(crate) fn below(self, budget: Value) -> Self {
        self.limited(Limit::Below(budget))
    }

    pub(crate) fn limited(self, limit: Limit) -> Self {
        Self { limit: Some(limit), ..self }
    }

    pub(crate) fn noting(mut self, notes: impl IntoIterator<Item = String>) -> Self {
        self.notes.extend(notes);
        self
    }

    pub(crate) fn is_over(&self) -> bool {
        self.limit.is_some_and(|limit| !limit.holds(self.measured))
    }

    fn verdict(&self) -> &'static str {
        match self.limit {
            None => "",
            Some(_) if self.is_over() => "OVER",
            Some(_) => "ok",
        }
    }

    fn json(&self) -> Json {
        let limit = self.limit.map(|limit| match limit {
            Limit::Below(value) => json!({"below": value.number()}),
            Limit::AtMost(value) => json!({"atMost": value.number()}),
        });
        json!({
            "what": self.what,
            "measured": self.measured.number(),
            "unit": self.measured.unit(),
            "budget": limit,
            "withinBudget": self.limit.map(|_| !self.is_over()),
            "samples": self.samples.iter().map(Duration::as_secs_f64).collect::<Vec<_>>(),
            "notes": self.notes,
        })
    }
}

/// The middle one; of an even number, the lower of the two in the middle.
pub(crate) fn median(samples: &[Duration]) -> Duration {
    let mut sorted = samples.to_owned();
    sorted.sort();
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or_default()
}

/// What the operator asked for to make clusters.
#[derive(Debug)]
pub(crate) struct RequestTable {
    pub(crate) what: &'static str,
    /// How many clusters the requests made.
    pub(crate) clusters: usize,
    pub(crate) requests: Requests,
}

impl RequestTable {
    fn per_cluster(&self, requests: u64) -> f64 {
        requests as f64 / self.clusters as f64
    }

    fn json(&self) -> Json {
        let verbs = self.requests.by_verb();
        let detail = self.requests.iter().map(|(request, count)| {
            json!({"verb": request.verb, "resource": request.resource, "count": self.per_cluster(count)})
        });
        json!({
            "what": self.what,
            "clusters": self.clusters,
            "perCluster": {
                "total": self.per_cluster(self.requests.total()),
                "byVerb": verbs.iter().map(|(verb, count)| ((*verb).to_owned(), json!(self.per_cluster(*count))))
                    .collect::<serde_json::Map<_, _>>(),
                "byVerbAndResource": detail.collect::<Vec<_>>(),
            }
        })
    }
}

/// All that was found out.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    pub(crate) figures: Vec<Figure>,
    pub(crate) requests: Vec<RequestTable>,
}

impl Report {
    pub(crate) fn write_json(&self, path: &Path) -> Result<()> {
        let report = json!({
            "machine": self.machine,
            "figures": self.figures.iter().map(Figure::json).collect::<Vec<_>>(),
            "requests": self.requests.iter().map(RequestTable::json).collect::<Vec<_>>(),
        });
        std::fs::write(path, format!("{report:#}\n"))
            .with_context(|| format!("the figures cannot be written to {}", path.display()))
    }

    fn figure_rows(&self) -> Vec<Vec<String>> {
        let header = ["what", "measured", "budget", "", "notes"].map(str::to_owned).to_vec();
        let rows = self.figures.iter().map(|figure| {
            vec![
                figure.what.clone(),
                figure.measured.to_string(),
                figure.limit.map(|limit| limit.to_string()).unwrap_or_default(),
                figure.verdict().to_owned(),
                figure.notes.join(", "),
            ]
        });
        std::iter::once(header).chain(rows).collect()
    }

    fn request_rows(&self) -> Vec<Vec<String>> {
        let row = |first: String, count: &dyn Fn(&RequestTable) -> u64| {
            let counts = self.requests.iter().map(|table| format!("{:.1}", table.per_cluster(count(table))));
            std::iter::once(first).chain(counts).collect::<Vec<_>>()
        };
        let header = self.requests.iter().map(|table| table.what.to_owned());
        let header = std::iter::once("API requests per cluster".to_owned()).chain(header).collect();
        let verbs: BTreeSet<_> =
            self.requests.iter().flat_map(|table| table.requests.by_verb()).map(|(verb, _)| verb).collect();
        let kinds: BTreeSet<_> = self
            .requests
            .iter()
            .flat_map(|table| table.requests.iter())
            .map(|(request, _)| request)
            .collect();
        let mut rows = vec![header, row("all".to_owned(), &|table| table.requests.total())];
        for verb in verbs {
            let of_verb =
                |table: &RequestTable| table.requests.by_verb().get(verb).copied().unwrap_or_default();
            rows.push(row(verb.to_owned(), &of_verb));
            for request in kinds.iter().filter(|request| request.verb == verb) {
                rows.push(row(format!("  {}", request.resource), &|table| table.requests.count(request)));
            }
        }
        rows
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write_table(f, &self.figure_rows())?;
        writeln!(f)?;
        write_table(f, &self.request_rows())?;
        let load = |load: Option<f64>| load.map_or("unknown".to_owned(), |load| format!("{load:.1}"));
        writeln!(
            f,
            "\nMeasured with {} cores; load {} before, {} at the end.",
            self.machine.cores,
            load(self.machine.load_before),
            load(self.machine.load_after)
        )?;
        let over: Vec<_> = self.figures.iter().filter(|figure| figure.is_over()).collect();
        match over.as_slice() {
            [] => writeln!(f, "All budgets hold."),
            over => writeln!(
                f,
                "OVER BUDGET: {}.",
                over.iter().map(|figure| figure.what.as_str()).collect::<Vec<_>>().join("; ")
            ),
        }
    }
}

/// The first column is words, the others are numbers, and the last of many is words again.
fn write_table(f: &mut Formatter<'_>, rows: &[Vec<String>]) -> fmt::Result {
    let columns = rows.first().map_or(0, Vec::len);
    let widths: Vec<_> = (0..columns)
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default())
        .collect();
    for (number, row) in rows.iter().enumerate() {
        let mut line = format!("{:<1$}", row[0], widths[0]);
        for (column, cell) in row.iter().enumerate().skip(1) {
            let is_words = columns > 4 && column + 1 == columns;
            let width = widths[column];
            line += &if is_words { format!("  {cell}") } else { format!("  {cell:>width$}") };
        }
        writeln!(f, "{}", line.trim_end())?;
        if number == 0 {
            writeln!(f, "{}", "─".repeat(widths.iter().sum::<usize>() + 2 * (columns - 1)))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(time: u64) -> Duration {
        Duration::from_millis(time)
    }

    fn report(figures: Vec<Figure>) -> Report {
        let machine = Machine { cores: 2, load_before: Some(0.5), load_after: None };
        Report { machine, figures, requests: Vec::new() }
    }

    #[test]
    fn one_slow_sample_does_not_move_the_median() {
        assert_eq!(median(&[ms(10), ms(900), ms(12), ms(11), ms(13)]), ms(12));
    }

    #[test]
    fn a_missed_budget_is_marked_and_named() {
        let met = Figure::new("start", Value::Time(ms(10))).below(Value::Time(ms(300)));
        let missed = Figure::new("memory", Value::Bytes(13_000_000)).below(Value::Bytes(12_000_000));
        let text = report(vec![met, missed]).to_string();
        let line =
            |word: &str| text.lines().find(|line| line.starts_with(word)).unwrap_or_default().to_owned();
        assert!(line("start").ends_with("ok"), "{text}");
        assert!(line("memory").ends_with("OVER") && line("memory").contains("13.0 MB"), "{text}");
        assert!(text.contains("OVER BUDGET: memory."), "{text}");
    }

    #[test]
    fn a_budget_of_nothing_is_met_by_nothing() {
        let figure = |count| Figure::new("idle", Value::Count(count)).limited(Limit::AtMost(Value::Count(0)));
        assert!(!figure(0).is_over());
        assert!(figure(1).is_over());
    }

    #[test]
    fn programs_read_the_same_figures() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let figure = Figure::median("start", &[ms(250)]).below(Value::Time(ms(300)));
        report(vec![figure]).write_json(file.path()).unwrap();
        let json: Json = serde_json::from_slice(&std::fs::read(file.path()).unwrap()).unwrap();
        assert_eq!(json["figures"][0]["measured"], 0.25);
        assert_eq!(json["figures"][0]["budget"]["below"], 0.3);
        assert_eq!(json["figures"][0]["withinBudget"], true);
        assert_eq!(json["machine"]["cores"], 2);
    }
}
