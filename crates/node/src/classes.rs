//! Kafka's jars, and the archives of the classes that are loaded from them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

/// The variable from which Java takes the class path: the list is too long to be read among arguments.
const CLASS_PATH: &str = "CLASSPATH";

/// What Java is told of Kafka's classes.
#[derive(Clone, Debug)]
pub struct Classes {
    path: OsString,
    kafka_archive: Option<PathBuf>,
    storage_tool_archive: Option<PathBuf>,
}

impl Classes {
    /// Looks at what is installed. The official images have archives, with which Kafka starts sooner; others need not.
    ///
    /// # Errors
    /// When there are no jars.
    pub fn find(kafka_home: &Path) -> io::Result<Self> {
        let archive = |name: &str| Some(kafka_home.join(name)).filter(|path| path.is_file());
        Ok(Self {
            path: env::join_paths(jars(&kafka_home.join("libs"))?).map_err(io::Error::other)?,
            kafka_archive: archive("kafka.jsa"),
            storage_tool_archive: archive("storage.jsa"),
        })
    }

    pub(crate) fn give_to_kafka(&self, java: &mut Command) {
        self.give(java, self.kafka_archive.as_deref());
    }

    pub(crate) fn give_to_storage_tool(&self, java: &mut Command) {
        self.give(java, self.storage_tool_archive.as_deref());
    }

    /// Java does without an archive that was made with another Java or for other jars.
    fn give(&self, java: &mut Command, archive: Option<&Path>) {
        java.env(CLASS_PATH, &self.path);
        if let Some(archive) = archive {
            let mut option = OsString::from("-XX:SharedArchiveFile=");
            option.push(archive);
            java.arg(option);
        }
    }
}

/// In the order of their names, as Kafka's scripts have them: an archive is good for the order in which it was made, and a
/// directory has none of its own.
fn jars(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut jars = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "jar") {
            jars.push(path);
        }
    }
    jars.sort();
    if jars.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "there are no jars"));
    }
    Ok(jars)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn without_archives() -> Classes {
        Classes { path: "/opt/kafka/libs/a.jar".into(), kafka_archive: None, storage_tool_archive: None }
    }

    fn installed(files: &[&str]) -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("libs")).unwrap();
        for file in files {
            fs::write(home.path().join(file), "").unwrap();
        }
        home
    }

    fn told(give: impl Fn(&mut Command)) -> (Vec<String>, String) {
        let mut java = Command::new("java");
        give(&mut java);
        let arguments = java.get_args().map(|argument| argument.to_string_lossy().into_owned()).collect();
        let path = java.get_envs().find(|(name, _)| *name == CLASS_PATH).unwrap().1.unwrap();
        (arguments, path.to_string_lossy().into_owned())
    }

    #[test]
    fn all_jars_are_on_the_class_path_in_the_order_of_their_names() {
        let home = installed(&["libs/b.jar", "libs/a.jar", "libs/C.jar", "libs/a.jar.asc"]);
        let (arguments, path) = told(|java| Classes::find(home.path()).unwrap().give_to_kafka(java));
        let libs = home.path().join("libs").display().to_string();
        assert_eq!(path, format!("{libs}/C.jar:{libs}/a.jar:{libs}/b.jar"));
        assert_eq!(arguments, [""; 0]);
    }

    #[test]
    fn each_program_gets_its_own_archive() {
        let home = installed(&["libs/a.jar", "kafka.jsa", "storage.jsa"]);
        let classes = Classes::find(home.path()).unwrap();
        let archive = |name: &str| format!("-XX:SharedArchiveFile={}", home.path().join(name).display());
        assert_eq!(told(|java| classes.give_to_kafka(java)).0, [archive("kafka.jsa")]);
        assert_eq!(told(|java| classes.give_to_storage_tool(java)).0, [archive("storage.jsa")]);
    }

    #[test]
    fn a_directory_without_jars_is_not_kafka() {
        assert!(Classes::find(installed(&[]).path()).is_err());
        assert!(Classes::find(Path::new("/no/such/kafka")).is_err());
    }
}
