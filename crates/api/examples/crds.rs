//! Writes the CustomResourceDefinitions as files: `cargo run -p karst-api --example crds -- deploy/crds`.

use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::args_os().nth(1).map(PathBuf::from);
    let directory =
        directory.ok_or("which directory shall the definitions be written to? Give it as argument")?;
    for (name, yaml) in karst_api::crds()? {
        let file = directory.join(name);
        std::fs::write(&file, yaml)
            .map_err(|error| format!("{} cannot be written: {error}", file.display()))?;
    }
    Ok(())
}
