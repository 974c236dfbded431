//! The machine that the figures were taken on: without it they mean little.

use std::fs;

use serde::Serialize;

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Machine {
    pub(crate) cores: usize,
    /// How many processes wanted a core in the last minute, before the measurement.
    pub(crate) load_before: Option<f64>,
    /// The same at the end, what was measured included.
    pub(crate) load_after: Option<f64>,
}

impl Machine {
    pub(crate) fn before() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self { cores, load_before: load(), load_after: None }
    }

    pub(crate) fn after(self) -> Self {
        Self { load_after: load(), ..self }
    }
}

fn load() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}
