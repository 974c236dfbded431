//! Runs campaigns and replays what they found.

use std::io::Write;
use std::time::Instant;

use clap::{Parser, ValueEnum};
use karst_sim::campaigns::{self, Chance, Starts};
use karst_sim::scenarios;

/// A third of a campaign's time went into memory that is taken and given back.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The campaigns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Campaign {
    /// Every call of every story is crashed, lost and refused.
    A,
    /// Every call of every story is crashed, and the operator starts again with an old view.
    B,
    /// Two operators, each believing to lead.
    C,
    /// Random faults.
    D,
    /// Resources are changed at random moments and put back.
    E,
    /// All orders of events in small quorums.
    F,
}

impl Campaign {
    fn chance(self) -> Option<Chance> {
        match self {
            Self::C => Some(Chance::TwoOperators),
            Self::D => Some(Chance::Faults),
            Self::E => Some(Chance::Mutations),
            Self::A | Self::B | Self::F => None,
        }
    }
}

/// Crash everything, everywhere.
#[derive(Debug, Parser)]
struct Arguments {
    /// What goes wrong.
    #[arg(long, default_value = "d")]
    campaign: Campaign,
    /// How many seeds.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// In campaign f: how many events in a row.
    #[arg(long, default_value_t = 8)]
    depth: usize,
    /// In campaigns a and b: crash only every so-manieth call.
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
    let mut out = std::io::stdout();
    let all = scenarios::all();
    let chosen: Vec<_> = all
        .into_iter()
        .filter(|one| arguments.scenario.as_deref().is_none_or(|name| name == one.name))
        .collect();
    let mut starts = Starts::default();
    let began = Instant::now();
    if arguments.campaign == Campaign::F {
        return explore(&mut out, &arguments, began);
    }
    if let (Some(seed), Some(chance)) = (arguments.replay, arguments.campaign.chance()) {
        if let Some(case) = campaigns::random_case(chance, &chosen, seed) {
            write!(out, "{}", campaigns::tell(&mut starts, &case))?;
        }
        return Ok(());
    }
    let tally = if let Some(chance) = arguments.campaign.chance() {
        let seeds = arguments.from..arguments.from + arguments.seeds;
        campaigns::random_many(chance, &chosen, seeds, arguments.findings)
    } else {
        let disturb = match arguments.campaign {
            Campaign::B => campaigns::crash_into_the_past,
            _ => campaigns::crash_every_call,
        };
        campaigns::on_all_cores(&chosen, |starts, scenario| {
            let found = disturb(starts, scenario, arguments.from, arguments.stride);
            let (runs, findings) = (found.runs, found.findings.len());
            // That nobody reads it is no reason to stop.
            let _ =
                writeln!(std::io::stdout(), "{:<40} {runs:>6} runs {findings:>4} findings", scenario.name);
            found
        })
    };
    for finding in tally.findings.iter().take(arguments.findings) {
        writeln!(out, "{finding}")?;
    }
    let seconds = began.elapsed().as_secs_f64();
    #[allow(clippy::cast_precision_loss)]
    let (runs, plans) = (tally.runs as f64 / seconds, tally.plans as f64 / seconds);
    writeln!(
        out,
        "campaign {:?} from seed {}: {} runs, {} calls, {} decisions, {} findings in {seconds:.1} s: {runs:.0} runs and {plans:.0} decisions a second",
        arguments.campaign,
        arguments.from,
        tally.runs,
        tally.calls,
        tally.plans,
        tally.findings.len()
    )?;
    if tally.stuck > 0 {
        writeln!(
            out,
            "{} of them ended stuck, where no operator could have helped: see docs/reliability.md",
            tally.stuck
        )?;
    }
    anyhow::ensure!(tally.findings.is_empty(), "{} runs went wrong", tally.findings.len());
    Ok(())
}

fn explore(out: &mut impl Write, arguments: &Arguments, began: Instant) -> anyhow::Result<()> {
    let mut wrong = 0;
    for plot in karst_sim::explore::plots() {
        let found = karst_sim::explore::explore(&plot, arguments.depth);
        writeln!(
            out,
            "{:<24} depth {}: {} states, {} events, {} decisions of {} different views",
            plot.name, arguments.depth, found.states, found.events, found.decisions, found.views
        )?;
        for line in found.story.iter().flatten() {
            writeln!(out, "  {line}")?;
        }
        wrong += usize::from(found.story.is_some());
        out.flush()?;
    }
    writeln!(out, "campaign F took {:.1} s", began.elapsed().as_secs_f64())?;
    anyhow::ensure!(wrong == 0, "{wrong} explorations went wrong");
    Ok(())
}
