//! What is measured, in order.

use std::time::Duration;

use anyhow::Result;
use tokio::time::Instant;

use crate::budgets;
use crate::decisions;
use crate::large;
use crate::machine::Machine;
use crate::passes;
use crate::report::{Figure, Limit, Report, RequestTable, Value};
use crate::requests::Requests;
use crate::stage::{Applied, Programs, Running, Stage};
use crate::usage::Memory;
use crate::week;

/// How often what takes a moment is repeated; the median counts.
pub(crate) const REPEATS: usize = 5;
const MANY: usize = 20;
const GROWN: usize = 200;
const LARGE: usize = 1000;
const MINUTE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) programs: Programs,
    /// Whether to go on to the largest number of clusters.
    pub(crate) large: bool,
    /// For how long clusters come and go; then nothing else is measured.
    pub(crate) week: Option<Duration>,
}

impl Scenario {
    pub(crate) async fn measure(self) -> Result<Report> {
        let machine = Machine::before();
        if let Some(length) = self.week {
            let figures = self.measure_week(length).await?;
            return Ok(Report { machine: machine.after(), figures, requests: Vec::new() });
        }
        let mut figures = Vec::new();
        let ids = Figure::median("ids for 10,000 new nodes", &decisions::ids_for(10_000, REPEATS));
        figures.push(ids.below(Value::Time(budgets::TEN_THOUSAND_IDS)));
        say("Deciding about 1,000 nodes, and about what is odd");
        figures.extend(passes::measure()?);
        let alone = self.measure_one_by_one(&mut figures).await?;
        let together = self.measure_many(&mut figures).await?;
        let requests = vec![
            RequestTable { what: "alone", clusters: REPEATS, requests: alone },
            RequestTable { what: "20 at once", clusters: MANY, requests: together },
        ];
        Ok(Report { machine: machine.after(), figures, requests })
    }

    /// What deciding costs.
    pub(crate) fn measure_passes() -> Result<Report> {
        let machine = Machine::before();
        let figures = passes::measure()?;
        Ok(Report { machine: machine.after(), figures, requests: Vec::new() })
    }

    /// Starts, and clusters that come alone.
    async fn measure_one_by_one(&self, figures: &mut Vec<Figure>) -> Result<Requests> {
        say("Starting an API server without nodes");
        let mut stage = Stage::prepare(&self.programs).await?;
        say(&format!("Starting the operator {REPEATS} times"));
        let mut starts = Vec::new();
        for _ in 0..REPEATS {
            let (running, took) = stage.start().await?;
            starts.push(took);
            stage = running.stop().await?;
        }
        figures.push(Figure::median("operator start → ready", &starts).below(Value::Time(budgets::START)));

        let (mut running, _) = stage.start().await?;
        running.settle().await?;
        figures.push(with_clusters(&running, 0)?);

        let mut applied = Vec::new();
        for number in 1..=REPEATS {
            say(&format!("Applying a cluster alone, {number} of {REPEATS}"));
            applied.push(running.apply(number..=number).await?);
            if number == 1 {
                figures.push(with_clusters(&running, 1)?);
            }
        }
        let times: Vec<_> = applied.iter().map(|applied| applied.pods_created).collect();
        let cpu: Vec<_> = applied.iter().map(|applied| applied.cpu).collect();
        let pods = Figure::median("one cluster applied → 6 pods", &times);
        figures.push(pods.below(Value::Time(budgets::ONE_CLUSTER)));
        figures.push(Figure::median("one cluster: CPU of the operator", &cpu));
        Ok(applied.into_iter().fold(Requests::default(), |mut all, applied| {
            all.add(applied.requests);
            all
        }))
    }

    /// Clusters that come all at once, then rest, then growth. On an API server of its own, so that the numbers of
    /// clusters are what they are said to be.
    async fn measure_many(&self, figures: &mut Vec<Figure>) -> Result<Requests> {
        say("Starting another API server");
        let (mut running, _) = Stage::prepare(&self.programs).await?.start().await?;
        running.settle().await?;
        say(&format!("Applying {MANY} clusters at once"));
        let Applied { pods_created, cpu, api_cpu, requests } = running.apply(1..=MANY).await?;
        let pods = Figure::new("20 clusters applied at once → 120 pods", Value::Time(pods_created));
        figures.push(pods.below(Value::Time(budgets::TWENTY_CLUSTERS)));
        figures.push(Figure::new("20 clusters: CPU of the operator", Value::Time(cpu)));
        figures.push(Figure::new("20 clusters: CPU of the API server and its store", Value::Time(api_cpu)));
        figures.push(with_clusters(&running, MANY)?);
        measure_idle(&mut running, figures).await?;
        let mut clusters = grow(&mut running, figures, MANY, GROWN).await?;
        if self.large {
            clusters = grow(&mut running, figures, clusters, LARGE).await?;
            large::change_all(&mut running, figures, clusters).await?;
        }
        let mut running = measure_restart(running, figures, clusters).await?;
        if self.large {
            large::live(&mut running, figures, clusters).await?;
        }
        running.stop().await?;
        Ok(requests)
    }

    /// Clusters that come, change and go.
    async fn measure_week(&self, length: Duration) -> Result<Vec<Figure>> {
        say("Starting an API server without nodes, and what removes objects");
        let mut stage = Stage::prepare(&self.programs).await?;
        stage.start_controllers(&self.programs)?;
        let (mut running, _) = stage.start().await?;
        running.settle().await?;
        let figures = week::measure(&mut running, length).await?;
        running.stop().await?;
        Ok(figures)
    }
}

async fn measure_idle(running: &mut Running, figures: &mut Vec<Figure>) -> Result<()> {
    say(&format!("Watching {MANY} clusters for an idle minute"));
    let idle = running.idle(MINUTE).await?;
    let others = Figure::new("idle minute: requests but for the lease", Value::Count(idle.others.total()));
    figures.push(others.limited(Limit::AtMost(Value::Count(0))).noting(
        idle.others.iter().map(|(request, count)| format!("{count} × {} {}", request.verb, request.resource)),
    ));
    figures.push(Figure::new("idle minute: requests for the lease", Value::Count(idle.leases.total())));
    figures.push(Figure::new("idle minute: CPU of the operator", Value::Time(idle.cpu)));
    Ok(())
}

async fn grow(running: &mut Running, figures: &mut Vec<Figure>, from: usize, to: usize) -> Result<usize> {
    say(&format!("Growing from {from} to {to} clusters"));
    let applied = running.apply(from + 1..=to).await?;
    let added = to - from;
    figures.push(Figure::new(
        format!("{added} more clusters applied → their pods"),
        Value::Time(applied.pods_created),
    ));
    figures
        .push(Figure::new(format!("{added} more clusters: CPU of the operator"), Value::Time(applied.cpu)));
    figures.push(with_clusters(running, to)?);
    Ok(to)
}

/// An operator that finds clusters when it starts, rather than seeing them come.
async fn measure_restart(running: Running, figures: &mut Vec<Figure>, clusters: usize) -> Result<Running> {
    say(&format!("Starting the operator anew with {clusters} clusters"));
    let (mut running, took) = running.stop().await?.start().await?;
    figures.push(Figure::new(format!("operator start → ready, {clusters} clusters"), Value::Time(took)));
    let requests = running.settle().await?;
    let after = format!("resident memory after a start with {clusters} clusters");
    figures.push(resident(after, running.memory()?));
    let writes =
        requests.iter().filter(|(request, _)| !["get", "list", "watch"].contains(&request.verb.as_str()));
    let writes = Value::Count(writes.map(|(_, count)| count).sum());
    figures.push(Figure::new("writes after that start", writes).limited(Limit::AtMost(Value::Count(0))));
    Ok(running)
}

/// The memory of an operator that has settled.
fn with_clusters(running: &Running, clusters: usize) -> Result<Figure> {
    let what = match clusters {
        0 => "resident memory, no cluster".to_owned(),
        1 => "resident memory, 1 cluster".to_owned(),
        _ => format!("resident memory, {clusters} clusters"),
    };
    let figure = resident(what, running.memory()?);
    Ok(match budgets::memory(clusters) {
        Some(budget) => figure.below(Value::Bytes(budget)),
        None => figure,
    })
}

pub(crate) fn resident(what: String, memory: Memory) -> Figure {
    let (data, peak) = (Value::Bytes(memory.anonymous), Value::Bytes(memory.peak));
    Figure::new(what, Value::Bytes(memory.resident)).noting([format!("data {data}"), format!("peak {peak}")])
}

/// Progress goes to standard error, so that the figures can be sent elsewhere.
pub(crate) fn say(what: &str) {
    use std::sync::LazyLock;
    static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
    eprintln!("{:>6.1} s  {what}", BEGAN.elapsed().as_secs_f64());
}
