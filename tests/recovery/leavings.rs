//! Files of attempts that a crash left behind: output files, and folders that were to be deleted.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;

use crate::root::{Root, boot_id, decided, request, running};

#[test]
fn row_67_output_files_of_a_former_daemon_are_not_used_again() {
    let root = Root::new();
    let names = ["slot-0.out", "slot-0.err", "slot-1.out", "slot-7.err"];
    let mut kept_open = Vec::new();
    for name in names {
        let path = root.path(".handoffd/run").join(name);
        kept_open.push(fs::File::create(path).unwrap());
    }
    root.put("handoffs/pending/x.json", &request());
    let forged = r#"{"status": "failed", "error": {"code": "X", "message": "forged"}}"#;
    let script = format!(
        "{}\nrm -f told; touch started; until [ -e told ]; do sleep 0.02; done\n",
        crate::root::SPECIALIST
    );
    root.put("do.sh", &script);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let begun = std::time::Instant::now();
            while !root.path("started").exists() {
                assert!(begun.elapsed().as_secs() < 60, "it was never started");
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            for file in &mut kept_open {
                file.write_all(forged.as_bytes()).unwrap();
            }
            root.put("told", "");
        });
        root.recover();
    });
    let record = root.expect_completed("x", 1);
    assert!(!record.to_string().contains("forged"), "{record:#}");
    for (name, file) in names.iter().zip(&kept_open) {
        let now = fs::metadata(root.path(".handoffd/run").join(name));
        let theirs = file.metadata().unwrap().ino();
        assert!(now.map_or(true, |now| now.ino() != theirs), "{name}");
    }
}

/// A folder with something in it.
fn fill(root: &Root, folder: &str) {
    let deep = root.path(folder).join("tmp/deep");
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("f"), "x").unwrap();
}

fn left(root: &Root) -> Vec<String> {
    let names = [".handoffd/homes", ".handoffd/run"].map(|folder| {
        let entries = fs::read_dir(root.path(folder)).unwrap().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names
            .filter(|name| name.starts_with(".gone-") || name.starts_with(['x', 'y', '~', 'o']))
            .collect::<Vec<_>>()
    });
    names.concat()
}

/// Starts daemons until nothing is left: one that has nothing else to do does not wait for that.
fn recover_until_swept(root: &Root) {
    root.recover();
    let begun = std::time::Instant::now();
    while !left(root).is_empty() {
        assert!(begun.elapsed().as_secs() < 60, "left: {:?}", left(root));
        root.recover_once();
    }
}

#[test]
fn row_68_the_folder_of_an_attempt_that_is_over_is_deleted() {
    let root = Root::new();
    for home in ["x.1", "x~verify.1", "x.2", "y.3", "~resident.1", "odd"] {
        fill(&root, &format!(".handoffd/homes/{home}"));
    }
    fill(&root, ".handoffd/run/x.1.result");
    root.put(
        "handoffs/in-progress/x.json",
        &decided("completed").to_string(),
    );
    recover_until_swept(&root);
    root.expect_completed("x", 0);
}

#[test]
fn row_68_the_folder_of_an_attempt_that_is_judged_keeps_its_result() {
    let root = Root::new();
    fill(&root, ".handoffd/homes/x.1");
    root.put(
        ".handoffd/homes/x.1/result",
        r#"{"status": "complete", "summary": "kept"}"#,
    );
    root.put(
        "handoffs/in-progress/x.json",
        &running("another boot").to_string(),
    );
    recover_until_swept(&root);
    let record = root.expect_completed("x", 0);
    assert_eq!(record["result"]["summary"], "kept");
}

#[test]
fn row_69_a_folder_that_was_being_deleted_is_deleted_on() {
    let root = Root::new();
    for folder in [
        ".handoffd/homes/.gone-1-0",
        ".handoffd/homes/.gone-1-1",
        ".handoffd/run/.gone-1-2",
    ] {
        fill(&root, folder);
        // What was brought up already.
        fill(&root, &format!("{folder}/.1"));
    }
    root.put(
        "handoffs/in-progress/x.json",
        &running(&boot_id()).to_string(),
    );
    recover_until_swept(&root);
    root.expect_completed("x", 1);
}
