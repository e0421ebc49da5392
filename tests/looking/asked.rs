//! What is asked for is what is meant: ids, filters and limits are taken at their word.

use std::fs;

use super::{Root, failed};

#[test]
fn a_path_is_no_id_whatever_it_leads_to() {
    let root = Root::new();
    root.put("failed", "broken-build", 5, &failed());
    root.put("failed", "x~2", 6, &failed());
    fs::write(root.path("evil.json"), failed().to_string()).unwrap();
    for id in ["../failed/broken-build", "../../evil", "./broken-build"] {
        for command in [
            &["show"][..],
            &["explain"],
            &["chain"],
            &["export"],
            &["logs"],
            &["wait"],
            &["cancel"],
            &["retry"],
            &["approve"],
            &["reject"],
            &["ask", "--comment", "why?"],
        ] {
            let told = root.see(&[command, &[id]].concat());
            assert!(told.contains("no handoff is called"), "{command:?}: {told}");
            assert!(told.ends_with("exit 1\n"), "{command:?}: {told}");
        }
    }
    let commands = fs::read_dir(root.path("handoffs/control")).unwrap();
    assert_eq!(commands.count(), 0);
    let made = root.see(&["explain", "x~2"]);
    assert!(made.starts_with("x~2 failed with"), "{made}");
}
