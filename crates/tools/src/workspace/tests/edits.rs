//! Tests: reading, writing, replacing, read-before-write, and the limits of space.

use super::*;

#[tokio::test]
async fn a_file_is_created_with_its_folders_and_read_back() {
    let fixture = Fixture::new();
    let agent = fixture.agent();
    let created = done(agent.write("src/deep/a.txt", "one\ntwo\n").await);
    assert_eq!(created, "Created /mnt/user-data/workspace/src/deep/a.txt with 8 bytes.");
    assert_eq!(agent.read("src/deep/a.txt").await, "one\ntwo\n");
    assert_eq!(
        done(agent.append("src/deep/a.txt", "three").await),
        "Added 5 bytes to /mnt/user-data/workspace/src/deep/a.txt."
    );
    assert_eq!(agent.read("src/deep/a.txt").await, "one\ntwo\nthree");
    assert_eq!(code(&agent.call(READ_FILE, json!({"path": "missing"})).await), "file.not_found");
    assert_eq!(code(&agent.call(READ_FILE, json!({"path": "missing/a"})).await), "file.not_found");
}

#[tokio::test]
async fn ranges_of_lines_are_inclusive_and_noted_when_they_pass_the_end() {
    let fixture = Fixture::new();
    let agent = fixture.agent();
    done(agent.write("a.txt", "one\ntwo\nthree\n").await);
    let range = |start: Option<u64>, end: Option<u64>| {
        let mut arguments = json!({"path": "a.txt"});
        if let Some(start) = start {
            arguments["start_line"] = json!(start);
        }
        if let Some(end) = end {
            arguments["end_line"] = json!(end);
        }
        arguments
    };
    let cases = [
        (Some(2), Some(2), "two\n"),
        (Some(2), None, "two\nthree\n"),
        (None, Some(2), "one\ntwo\n"),
        (Some(1), Some(3), "one\ntwo\nthree\n"),
        (Some(3), Some(9), "three\n(End of the file: it has 3 lines.)"),
        (Some(4), None, "(The file has 3 lines; line 4 is past its end.)"),
    ];
    for (start, end, expected) in cases {
        assert_eq!(agent.text(READ_FILE, range(start, end)).await, expected, "{start:?} {end:?}");
    }
    assert_eq!(code(&agent.call(READ_FILE, range(Some(3), Some(2))).await), "file.range");
    assert_eq!(code(&agent.call(READ_FILE, range(Some(0), None)).await), "bad_arguments");
    done(agent.write("empty.txt", "").await);
    assert_eq!(agent.read("empty.txt").await, "(The file is empty.)");
}

#[tokio::test]
async fn binary_files_are_refused() {
    let fixture = Fixture::new();
    let agent = fixture.agent();
    for (name, content) in [("zero", b"a\0b".as_slice()), ("latin", b"caf\xe9 au lait"), ("png", b"\x89PNG\r\n\x1a\n")]
    {
        fixture.workspace.add_upload(name, content.to_vec()).await.unwrap();
        std::fs::write(fixture.on_host("workspace").join(name), content).unwrap();
        let path = format!("../uploads/{name}");
        assert_eq!(code(&agent.call(READ_FILE, json!({"path": path})).await), "file.binary");
        assert_eq!(code(&agent.replace(name, "a", "b").await), "file.unread");
    }
    // A character that is divided by the end of what is inspected is no reason.
    let text = format!("{}é", "x".repeat(8 * 1024 - 1));
    done(agent.write("text", &text).await);
    assert_eq!(agent.read("text").await, text);
}

#[tokio::test]
async fn long_results_are_cut_with_the_line_where_to_read_on() {
    let fixture = Fixture::new();
    let agent = fixture.agent();
    let line = "0123456789".repeat(10);
    let content: String = (1..=700).map(|number| format!("{number:04}{line}\n")).collect();
    done(agent.write("long.txt", &content).await);
    let text = agent.read("long.txt").await;
    assert!(text.chars().count() <= limits::WORKSPACE_READ + 100, "{}", text.len());
    // 50,000 characters are 476 lines of 105 and a part of the next one.
    assert!(
        text.ends_with("\n(Cut in line 477; the file has 700 lines. Read on with `start_line`.)"),
        "{}",
        &text[text.len() - 120..]
    );
    let rest = agent.text(READ_FILE, json!({"path": "long.txt", "start_line": 477})).await;
    assert!(rest.starts_with("0477") && rest.ends_with(&format!("0700{line}\n")));
    done(agent.write("wide.txt", &"ä".repeat(40_000)).await);
    let wide = agent.read("wide.txt").await;
    assert!(
        wide.len() <= limits::TOOL_RESULT && wide.contains("(Cut in line 1; the file has 1 lines."),
        "{}",
        wide.len()
    );
    // A line that is longer than what is kept of a line, in a file that tools cannot write at once.
    std::fs::write(fixture.on_host("workspace/huge.txt"), format!("{}\nlast\n", "x".repeat(1 << 20))).unwrap();
    assert_eq!(agent.text(READ_FILE, json!({"path": "huge.txt", "start_line": 2})).await, "last\n");
}

#[tokio::test]
async fn no_part_of_a_secret_remains_where_a_file_is_cut() {
    let secret: String = (0..60).map(|number| format!("<{number:02}>")).collect();
    let fixture = Fixture::with(|settings| settings.secrets = vec![Secret::new(secret.as_str())]);
    std::fs::create_dir_all(fixture.on_host("workspace")).unwrap();
    let agent = fixture.agent();
    for shift in [0, 1, 100, 239] {
        let content = format!("{}{}", "-".repeat(shift), format!("{secret}\n").repeat(2_000));
        std::fs::write(fixture.on_host("workspace/a.txt"), content).unwrap();
        let text = agent.read("a.txt").await;
        assert!(text.contains("[secret]\n[secret]\n") && text.contains("(Cut in line "), "{shift}");
        assert!(!text.contains('<') && !text.contains('>'), "{shift}: {}", &text[text.len() - 500..]);
    }
}

#[tokio::test]
async fn one_call_writes_80_kb_and_appending_goes_on() {
    let fixture = Fixture::new();
    let agent = fixture.agent();
    let part = "x".repeat(limits::WORKSPACE_WRITE);
    assert_eq!(code(&agent.write("a.txt", &format!("{part}x")).await), "file.too_large");
    assert!(!fixture.on_host("workspace/a.txt").exists());
    done(agent.write("a.txt", &part).await);
    agent.text(READ_FILE, json!({"path": "a.txt", "start_line": 1, "end_line": 1})).await;
    done(agent.append("a.txt", &part).await);
    assert_eq!(
        fixture.workspace.usage().await.unwrap(),
        Usage { bytes: 2 * part.len() as u64, entries: 1, ..Usage::default() }
    );
}

#[tokio::test]
async fn text_is_replaced_once_or_everywhere() {
    let fixture = Fixture::new();
    let agent = fixture.agent();
    done(agent.write("a.txt", "one two one").await);
    agent.read("a.txt").await;
    assert_eq!(code(&agent.replace("a.txt", "", "x").await), "file.edit");
    assert_eq!(code(&agent.replace("a.txt", "one", "one").await), "file.edit");
    assert_eq!(code(&agent.replace("a.txt", "three", "x").await), "file.absent");
    let twice = agent.replace("a.txt", "one", "x").await;
    assert_eq!(code(&twice), "file.ambiguous");
    assert!(twice.for_model().contains("2 times"), "{twice:?}");
    assert_eq!(done(agent.replace("a.txt", "two", "2").await), "Replaced 1 in /mnt/user-data/workspace/a.txt.");
    agent.read("a.txt").await;
    let all = json!({"path": "a.txt", "old_str": "one", "new_str": "", "replace_all": true});
    assert_eq!(agent.text(STR_REPLACE, all).await, "Replaced 2 in /mnt/user-data/workspace/a.txt.");
    assert_eq!(agent.read("a.txt").await, " 2 ");
    assert_eq!(code(&agent.replace("missing.txt", "a", "b").await), "file.not_found");
}

#[tokio::test]
async fn line_ends_of_windows_survive_a_replacement_over_two_lines() {
    let fixture = Fixture::new();
    let agent = fixture.agent();
    std::fs::create_dir_all(fixture.on_host("workspace")).unwrap();
    std::fs::write(fixture.on_host("workspace/a.txt"), "one\r\ntwo\r\nthree\r\n").unwrap();
    assert_eq!(agent.read("a.txt").await, "one\ntwo\nthree\n");
    done(agent.replace("a.txt", "one\ntwo", "1\n2").await);
    assert_eq!(std::fs::read_to_string(fixture.on_host("workspace/a.txt")).unwrap(), "1\r\n2\r\nthree\r\n");
}

#[tokio::test]
async fn an_existing_file_must_be_read_before_it_is_written() {
    let fixture = Fixture::new();
    let (one, two) = (fixture.agent(), fixture.agent());
    done(one.write("a.txt", "first").await);
    assert_eq!(code(&two.write("a.txt", "second").await), "file.unread");
    assert_eq!(code(&two.append("a.txt", "more").await), "file.unread");
    assert_eq!(code(&two.replace("a.txt", "first", "second").await), "file.unread");
    two.read("a.txt").await;
    done(one.write("a.txt", "second").await);
    // The write voids what the other one has read.
    assert_eq!(code(&two.write("a.txt", "third").await), "file.changed");
    assert_eq!(code(&two.append("a.txt", "more").await), "file.changed");
    assert_eq!(code(&two.replace("a.txt", "second", "third").await), "file.changed");
    assert_eq!(two.read("a.txt").await, "second");
    done(two.replace("a.txt", "second", "third").await);
    assert_eq!(code(&one.write("a.txt", "fourth").await), "file.changed");
    assert_eq!(std::fs::read_to_string(fixture.on_host("workspace/a.txt")).unwrap(), "third");
}

#[tokio::test]
async fn an_agent_knows_the_content_that_it_wrote() {
    let fixture = Fixture::new();
    let (one, two) = (fixture.agent(), fixture.agent());
    done(one.write("a.txt", "one two three").await);
    done(one.replace("a.txt", "one", "1").await);
    done(one.replace("a.txt", "two", "2").await);
    done(one.append("a.txt", " four").await);
    done(one.replace("a.txt", "three four", "3 4").await);
    done(one.write("a.txt", "other").await);
    // The same content again, which changes nothing.
    done(two.write("a.txt", "other").await);
    done(two.append("a.txt", "!").await);
    assert_eq!(code(&one.append("a.txt", "?").await), "file.changed");
    assert_eq!(std::fs::read_to_string(fixture.on_host("workspace/a.txt")).unwrap(), "other!");
    // Another process runs the turn again, and takes over what was recorded.
    let arguments = json!({"description": "a test", "path": "a.txt", "content": "new"});
    let written = invoke(&two.set, WRITE_FILE, arguments.clone(), &context(), None).await;
    let later = fixture.agent();
    later.tools.tool(WRITE_FILE).unwrap().replayed(&arguments, &written, &context());
    done(later.replace("a.txt", "new", "newer").await);
}

#[tokio::test]
async fn a_mask_is_explained_and_is_not_written_in_place_of_the_text() {
    let fixture = Fixture::with(|settings| settings.secrets = vec![Secret::new("Waterloo99")]);
    std::fs::create_dir_all(fixture.on_host("workspace")).unwrap();
    let (file, agent) = (fixture.on_host("workspace/a.txt"), fixture.agent());
    std::fs::write(&file, "city: Waterloo99\nmark: [secret]\nstreet: 1\n").unwrap();
    let text = agent.read("a.txt").await;
    assert!(text.starts_with("city: [secret]\nmark: [secret]\nstreet: 1\n(Some text is not shown to you, and this stands for it: `[secret]`."), "{text}");
    // A part without a mask has no note, although the file has the characters of one.
    let part = json!({"path": "a.txt", "start_line": 2, "end_line": 2});
    assert_eq!(agent.text(READ_FILE, part).await, "mark: [secret]\n");
    let copy = "city: [secret]\nmark: [secret]\nstreet: 2\n";
    for outcome in [
        agent.write("a.txt", copy).await,
        agent.write("copy.txt", copy).await,
        agent.append("a.txt", "again: [secret]\n").await,
        agent.replace("a.txt", "street: 1", "street: [secret]").await,
    ] {
        assert_eq!(code(&outcome), "file.masked");
        assert!(outcome.for_model().contains("`[secret]` in the content stands for"), "{outcome:?}");
    }
    // What the file has itself stays, and the text around a secret can be changed.
    done(agent.replace("a.txt", "mark: [secret]", "the mark is [secret]").await);
    done(agent.replace("a.txt", "street: 1", "street: 2").await);
    let changed = "city: Waterloo99\nthe mark is [secret]\nstreet: 2\n";
    assert_eq!(std::fs::read_to_string(&file).unwrap(), changed);
    assert!(!fixture.on_host("workspace/copy.txt").exists());
    // Nothing is masked by this mark where there are no secrets.
    done(Fixture::new().agent().write("a.txt", "[secret]").await);
}

#[cfg(unix)]
#[tokio::test]
async fn only_the_owner_can_read_files_and_folders() {
    use std::os::unix::fs::PermissionsExt;

    let fixture = Fixture::new();
    done(fixture.agent().write("a/b.txt", "x").await);
    fixture.workspace.add_upload("c.txt", vec![0]).await.unwrap();
    let workspaces = Workspaces::new(WorkspaceSettings::new(fixture.folder.path()));
    std::fs::set_permissions(fixture.on_host("workspace/a/b.txt"), std::fs::Permissions::from_mode(0o755)).unwrap();
    workspaces.copy_run("run", "copy").await.unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&fixture.folder.path().join("copy/workspace/a/b.txt")), 0o700, "it stays executable");
    std::fs::set_permissions(fixture.on_host("workspace/a/b.txt"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let all = tree(fixture.folder.path());
    assert!(all.len() > 4, "{all:?}");
    for path in all {
        assert_eq!(mode(&path) & 0o077, 0, "{}", path.display());
        path.ancestors().skip(1).take_while(|above| *above != fixture.folder.path()).for_each(|above| {
            assert_eq!(mode(above), 0o700, "{}", above.display());
        });
    }
}

#[tokio::test]
async fn what_was_read_is_a_content_whoever_wrote_it() {
    let fixture = Fixture::new();
    let (one, two) = (fixture.agent(), fixture.agent());
    done(one.write("a.txt", "first").await);
    one.read("a.txt").await;
    two.read("a.txt").await;
    done(two.write("a.txt", "second").await);
    assert_eq!(code(&one.write("a.txt", "third").await), "file.changed");
    two.read("a.txt").await;
    done(two.write("a.txt", "first").await);
    done(one.write("a.txt", "third").await);
}

#[tokio::test]
async fn sessions_of_one_agent_have_read_only_what_they_read_themselves() {
    let fixture = Fixture::new();
    let agent = fixture.agent();
    let as_session = |session: &str| {
        let mut context = context();
        context.caller.session = Some(session.into());
        context
    };
    let call = async |session: &str, tool: &str, arguments: Json| {
        let mut arguments = arguments;
        arguments["description"] = json!("a test");
        invoke(&agent.set, tool, arguments, &as_session(session), None).await
    };
    done(call("one", WRITE_FILE, json!({"path": "a", "content": "1"})).await);
    done(call("one", READ_FILE, json!({"path": "a"})).await);
    assert_eq!(code(&call("two", WRITE_FILE, json!({"path": "a", "content": "2"})).await), "file.unread");
    done(call("one", WRITE_FILE, json!({"path": "a", "content": "3"})).await);
}

#[tokio::test]
async fn a_replayed_reading_counts_by_the_content_that_was_read() {
    let fixture = Fixture::new();
    let agent = fixture.agent();
    done(agent.write("a.txt", "first").await);
    let arguments = json!({"description": "a test", "path": "a.txt"});
    let read = invoke(&agent.set, READ_FILE, arguments.clone(), &context(), None).await;
    // Another process runs the turn again.
    let later = fixture.agent();
    assert_eq!(code(&later.write("a.txt", "second").await), "file.unread");
    later.tools.tool(READ_FILE).unwrap().replayed(&arguments, &read, &context());
    done(later.write("a.txt", "second").await);
    let last = fixture.agent();
    last.tools.tool(READ_FILE).unwrap().replayed(&arguments, &read, &context());
    assert_eq!(code(&last.write("a.txt", "third").await), "file.changed");
}

#[tokio::test]
async fn two_workspaces_of_one_folder_share_contents_and_do_not_disturb_each_other() {
    let fixture = Fixture::new();
    let other = Workspace::new(WorkspaceSettings::new(fixture.workspace.folder()));
    let (one, two) = (fixture.agent(), Agent::new(WorkspaceTools::new(other)));
    done(one.write("a.txt", "first").await);
    assert_eq!(two.read("a.txt").await, "first");
    one.read("a.txt").await;
    done(two.write("a.txt", "second").await);
    assert_eq!(code(&one.write("a.txt", "third").await), "file.changed");
    done(one.write("b.txt", "b").await);
}

#[tokio::test]
async fn a_change_that_no_tool_made_voids_what_was_read() {
    let fixture = Fixture::new();
    let agent = fixture.agent();
    done(agent.write("a.txt", "first").await);
    agent.read("a.txt").await;
    std::fs::write(fixture.on_host("workspace/a.txt"), "by a command").unwrap();
    assert_eq!(code(&agent.write("a.txt", "second").await), "file.changed");
    // A search is no reading.
    agent.text(GREP, json!({"pattern": "command"})).await;
    assert_eq!(code(&agent.write("a.txt", "second").await), "file.changed");
}

#[tokio::test]
async fn a_repeated_write_of_the_same_content_succeeds() {
    let fixture = Fixture::new();
    let agent = fixture.agent();
    done(agent.write("a.txt", "same").await);
    assert_eq!(done(agent.write("a.txt", "same").await), "/mnt/user-data/workspace/a.txt has this content already.");
    assert_eq!(code(&fixture.agent().write("a.txt", "emas").await), "file.unread");
}

#[tokio::test]
async fn the_space_is_counted_over_all_files_and_refused_in_clear_words() {
    let fixture = Fixture::with(|settings| settings.max_bytes = 100);
    let agent = fixture.agent();
    fixture.workspace.add_upload("u", vec![b'x'; 40]).await.unwrap();
    done(agent.write("a/b.txt", &"x".repeat(30)).await);
    done(agent.write("../outputs/c.txt", &"x".repeat(30)).await);
    let full = agent.write("d/e.txt", "x").await;
    assert_eq!(code(&full), "file.quota");
    assert!(full.for_model().contains("would take 101 bytes together, and 100 are allowed"), "{full:?}");
    assert!(!fixture.on_host("workspace/d").exists(), "a refused write creates no folders");
    assert!(fixture.workspace.add_upload("v", vec![0]).await.is_err());
    agent.read("a/b.txt").await;
    assert_eq!(code(&agent.append("a/b.txt", "x").await), "file.quota");
    assert_eq!(code(&agent.replace("a/b.txt", &"x".repeat(30), &"y".repeat(31)).await), "file.quota");
    assert_eq!(std::fs::read_to_string(fixture.on_host("workspace/a/b.txt")).unwrap(), "x".repeat(30));
    // A shorter content makes room.
    done(agent.write("a/b.txt", "x").await);
    done(agent.write("d/e.txt", &"x".repeat(29)).await);
    let expected = Usage { bytes: 100, entries: 6, too_deep: false };
    assert_eq!(fixture.workspace.usage().await.unwrap(), expected);
    assert_eq!(RunFolder::open(fixture.workspace.folder()).unwrap().usage().unwrap(), expected);
}

#[tokio::test]
async fn the_number_of_files_is_limited() {
    let fixture = Fixture::new();
    let agent = fixture.agent();
    let folder = fixture.on_host("workspace");
    std::fs::create_dir_all(&folder).unwrap();
    for number in 0..limits::WORKSPACE_ENTRIES - 2 {
        std::fs::File::create(folder.join(number.to_string())).unwrap();
    }
    assert_eq!(code(&agent.write("a/b/c", "").await), "file.too_many");
    done(agent.write("a/b", "").await);
    assert_eq!(code(&agent.write("c", "").await), "file.too_many");
    agent.read("a/b").await;
    done(agent.write("a/b", "changed").await);
}

#[tokio::test]
async fn folders_too_deep_to_be_counted_stop_writes() {
    let fixture = Fixture::new();
    let agent = fixture.agent();
    let deep = (0..2 * limits::WORKSPACE_DEPTH + 2).fold(fixture.on_host("workspace"), |at, _| at.join("d"));
    std::fs::create_dir_all(deep).unwrap();
    assert_eq!(code(&agent.write("a", "x").await), "file.too_many");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_writers_lose_no_write_and_exceed_no_limit() {
    let fixture = Arc::new(Fixture::with(|settings| settings.max_bytes = 2_000));
    // Sixteen agents add lines to one file; each reads it again when another one was faster.
    let adding = (0..16).map(|number| {
        let fixture = fixture.clone();
        tokio::spawn(async move {
            let agent = fixture.agent();
            let line = format!("line {number:02}\n");
            loop {
                let outcome = agent.append("log.txt", &line).await;
                match &outcome {
                    ToolOutcome::Done(_) => return,
                    _ => assert!(matches!(code(&outcome), "file.unread" | "file.changed"), "{outcome:?}"),
                }
                agent.read("log.txt").await;
            }
        })
    });
    futures::future::join_all(adding).await.into_iter().for_each(|joined| joined.unwrap());
    let text = std::fs::read_to_string(fixture.on_host("workspace/log.txt")).unwrap();
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, (0..16).map(|number| format!("line {number:02}")).collect::<Vec<_>>());
    // Forty agents want 100 bytes each; there is room for eighteen.
    let filling = (0..40).map(|number| {
        let fixture = fixture.clone();
        tokio::spawn(async move { fixture.agent().write(&format!("f/{number}"), &"x".repeat(100)).await })
    });
    let outcomes: Vec<_> = futures::future::join_all(filling).await.into_iter().map(Result::unwrap).collect();
    let written = outcomes.iter().filter(|outcome| matches!(outcome, ToolOutcome::Done(_))).count();
    assert_eq!(written, 18);
    assert!(outcomes.iter().filter(|outcome| outcome.is_failure()).all(|outcome| code(outcome) == "file.quota"));
    assert_eq!(fixture.workspace.usage().await.unwrap().bytes, 16 * 8 + 1_800);
}

#[tokio::test]
async fn what_a_crash_left_unfinished_is_removed_and_not_counted() {
    let fixture = Fixture::new();
    std::fs::create_dir_all(fixture.on_host("unfinished")).unwrap();
    std::fs::write(fixture.on_host("unfinished/0"), "half a file").unwrap();
    done(fixture.agent().write("a", "x").await);
    assert_eq!(tree(&fixture.on_host("unfinished")), [fixture.on_host("unfinished/lock")]);
    assert_eq!(fixture.workspace.usage().await.unwrap(), Usage { bytes: 1, entries: 1, too_deep: false });
}

#[tokio::test]
async fn only_files_below_outputs_are_presented() {
    let fixture = Fixture::new();
    let agent = fixture.agent();
    done(agent.write("../outputs/report.md", "# Report").await);
    done(agent.write("draft.md", "x").await);
    let outcome = agent.call(PRESENT_FILES, json!({"filepaths": ["/mnt/user-data/outputs/report.md"]})).await;
    let ToolOutcome::Done(output) = &outcome else { panic!("{outcome:?}") };
    let expected = json!({"files": [{"path": "/mnt/user-data/outputs/report.md", "bytes": 8}]});
    assert_eq!(output.structured, Some(expected));
    let cases = [
        (vec!["draft.md"], "file.not_an_output"),
        (vec!["../outputs/report.md", "../uploads/a"], "file.not_an_output"),
        (vec!["../outputs/missing.md"], "file.not_found"),
        (vec!["../outputs"], "file.not_a_file"),
        (vec![], "bad_arguments"),
    ];
    for (paths, expected) in cases {
        let outcome = agent.call(PRESENT_FILES, json!({"filepaths": paths})).await;
        assert_eq!(code(&outcome), expected, "{paths:?}");
    }
}
