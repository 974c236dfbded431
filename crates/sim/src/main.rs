//! Runs campaigns and replays what they found.

use std::io::Write;
use std::time::Instant;

use clap::Parser;
use karst_sim::campaigns::{self, Starts, Tally};
use karst_sim::scenarios;

/// Crash everything, everywhere.
#[derive(Debug, Parser)]
struct Arguments {
    /// a: every call of every story is crashed; d: random faults.
    #[arg(long, default_value = "d")]
    campaign: String,
    /// How many seeds.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// In campaign a: crash only every so-manieth call.
    #[arg(long, default_value_t = 1)]
    stride: usize,
    /// Only this story.
    #[arg(long)]
    scenario: Option<String>,
    /// Tells the story of one seed.
    #[arg(long)]
    replay: Option<u64>,
    /// Stops after so many findings.
    #[arg(long, default_value_t = 5)]
    findings: usize,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let mut out = std::io::stdout().lock();
    let all = scenarios::all();
    let chosen: Vec<_> = all
        .into_iter()
        .filter(|one| arguments.scenario.as_deref().is_none_or(|name| name == one.name))
        .collect();
    let mut starts = Starts::default();
    if let Some(seed) = arguments.replay {
        if let Some((_, finding)) = campaigns::random(&mut starts, &chosen, seed, true) {
            write!(out, "{finding}")?;
        }
        return Ok(());
    }
    let began = Instant::now();
    let seeds = arguments.from..arguments.from + arguments.seeds;
    let mut tally = Tally::default();
    if arguments.campaign == "a" {
        for scenario in &chosen {
            let found = campaigns::crash_every_call(&mut starts, scenario, arguments.from, arguments.stride);
            writeln!(
                out,
                "{:<40} {:>6} runs {:>4} findings",
                scenario.name,
                found.runs,
                found.findings.len()
            )?;
            out.flush()?;
            tally.add(found);
        }
    } else {
        tally = campaigns::random_many(&mut starts, &chosen, seeds, arguments.findings);
    }
    for finding in tally.findings.iter().take(arguments.findings) {
        writeln!(out, "{finding}")?;
    }
    let seconds = began.elapsed().as_secs_f64();
    #[allow(clippy::cast_precision_loss)]
    let speed = tally.runs as f64 / seconds;
    writeln!(
        out,
        "{} runs, {} calls, {} decisions, {} findings in {seconds:.1} s: {speed:.0} runs a second",
        tally.runs,
        tally.calls,
        tally.plans,
        tally.findings.len()
    )?;
    anyhow::ensure!(tally.findings.is_empty(), "{} runs went wrong", tally.findings.len());
    Ok(())
}
