//! Tests: `ls`, `glob` and `grep`.

use super::*;

async fn project() -> Fixture {
    let fixture = Fixture::new();
    let agent = fixture.agent();
    for (path, content) in [
        ("readme.md", "# Title\nSome text\n"),
        ("src/main.py", "import os\nprint('Hello')\n"),
        ("src/lib/util.py", "def hello():\n    return 'HELLO'\n"),
        ("src/lib/deep/more.py", "x = 1\n"),
        ("data/a.csv", "1,2\n"),
        ("../outputs/out.txt", "hello\n"),
    ] {
        done(agent.write(path, content).await);
    }
    fixture
}

#[tokio::test]
async fn a_folder_is_listed_as_a_tree_of_two_levels() {
    let fixture = project().await;
    let agent = fixture.agent();
    let expected = "/mnt/user-data/workspace\n  data/\n    a.csv (4 bytes)\n  readme.md (18 bytes)\n  src/\n    lib/\n    main.py (25 bytes)";
    assert_eq!(agent.text(LS, json!({"path": "."})).await, expected);
    let root = agent.text(LS, json!({"path": "/mnt/user-data"})).await;
    assert_eq!(
        root,
        "/mnt/user-data\n  workspace/\n    data/\n    readme.md (18 bytes)\n    src/\n  uploads/\n  outputs/\n    out.txt (6 bytes)"
    );
    assert_eq!(agent.text(LS, json!({"path": "../uploads"})).await, "(empty)");
    assert_eq!(code(&agent.call(LS, json!({"path": "missing"})).await), "file.not_found");
}

#[tokio::test]
async fn a_long_list_is_cut_at_a_line() {
    let fixture = Fixture::new();
    let folder = fixture.on_host("workspace");
    std::fs::create_dir_all(&folder).unwrap();
    for number in 0..1_000 {
        std::fs::File::create(folder.join(format!("{number:0>40}"))).unwrap();
    }
    let text = fixture.agent().text(LS, json!({"path": "."})).await;
    let length = text.chars().count();
    assert!(length <= limits::WORKSPACE_LIST && length > limits::WORKSPACE_LIST - 200, "{length}");
    assert!(text.ends_with("(0 bytes)\n(The list is cut. List a folder further down, or use glob.)"), "{text}");
}

#[cfg(unix)]
#[tokio::test]
async fn names_cannot_forge_lines_of_a_list() {
    let fixture = Fixture::new();
    std::fs::create_dir_all(fixture.on_host("workspace")).unwrap();
    std::fs::write(fixture.on_host("workspace").join("a\nb (1 bytes)\u{202e}"), "needle").unwrap();
    let agent = fixture.agent();
    for text in [
        agent.text(LS, json!({"path": "."})).await,
        agent.text(GLOB, json!({"pattern": "*"})).await,
        agent.text(GREP, json!({"pattern": "needle"})).await,
    ] {
        assert!(text.contains("a␊b (1 bytes)⟨U+202E⟩"), "{text}");
    }
}

#[tokio::test]
async fn files_are_found_by_pattern() {
    let fixture = project().await;
    let agent = fixture.agent();
    let cases = [
        (json!({"pattern": "*.md"}), "/mnt/user-data/workspace/readme.md"),
        (json!({"pattern": "*.py"}), "(Nothing matches.)"),
        (
            json!({"pattern": "**/*.py"}),
            "/mnt/user-data/workspace/src/lib/deep/more.py\n/mnt/user-data/workspace/src/lib/util.py\n/mnt/user-data/workspace/src/main.py",
        ),
        (
            json!({"pattern": "*/{a.csv,main.py}"}),
            "/mnt/user-data/workspace/data/a.csv\n/mnt/user-data/workspace/src/main.py",
        ),
        (json!({"pattern": "*.py", "path": "src"}), "/mnt/user-data/workspace/src/main.py"),
        (json!({"pattern": "outputs/*", "path": "/mnt/user-data"}), "/mnt/user-data/outputs/out.txt"),
        (
            json!({"pattern": "**", "max_results": 1}),
            "/mnt/user-data/workspace/data/a.csv\n(There are more; only 1 are shown. Narrow the pattern or the path.)",
        ),
    ];
    for (arguments, expected) in cases {
        assert_eq!(agent.text(GLOB, arguments.clone()).await, expected, "{arguments}");
    }
    for arguments in [json!({"pattern": "[a"}), json!({"pattern": "x".repeat(limits::WORKSPACE_PATTERN + 1)})] {
        assert_eq!(code(&agent.call(GLOB, arguments).await), "file.pattern");
    }
    assert_eq!(code(&agent.call(GLOB, json!({"pattern": "*", "max_results": 201})).await), "bad_arguments");
    assert_eq!(code(&agent.call(GLOB, json!({"pattern": "*", "path": "readme.md"})).await), "file.not_a_folder");
}

#[tokio::test]
async fn lines_are_found_by_regular_expression() {
    let fixture = project().await;
    let agent = fixture.agent();
    std::fs::write(fixture.on_host("workspace/binary"), b"hello\0").unwrap();
    let note = "(1 files that are not text were not searched.)";
    let cases = [
        (json!({"pattern": "hello"}), format!("/mnt/user-data/workspace/src/lib/util.py:1: def hello():\n{note}")),
        (
            json!({"pattern": "hello", "ignore_case": true, "glob": "**/*.py"}),
            "/mnt/user-data/workspace/src/lib/util.py:1: def hello():\n/mnt/user-data/workspace/src/lib/util.py:2:     return 'HELLO'\n/mnt/user-data/workspace/src/main.py:2: print('Hello')".to_owned(),
        ),
        (json!({"pattern": "^Some.*t$", "path": "readme.md"}), "/mnt/user-data/workspace/readme.md:2: Some text".to_owned()),
        (json!({"pattern": "hello", "path": "../outputs"}), "/mnt/user-data/outputs/out.txt:1: hello".to_owned()),
        (
            json!({"pattern": ".", "path": "src", "max_results": 2}),
            "/mnt/user-data/workspace/src/lib/deep/more.py:1: x = 1\n/mnt/user-data/workspace/src/lib/util.py:1: def hello():\n(There are more; only 2 are shown. Narrow the pattern or the path.)".to_owned(),
        ),
    ];
    for (arguments, expected) in cases {
        assert_eq!(agent.text(GREP, arguments.clone()).await, expected, "{arguments}");
    }
    for pattern in ["(", "(?=x)", r"(a)\1", "((a{100}){100}){100}", &"x".repeat(limits::WORKSPACE_PATTERN + 1)] {
        assert_eq!(code(&agent.call(GREP, json!({"pattern": pattern})).await), "file.pattern", "{pattern}");
    }
    assert_eq!(code(&agent.call(GREP, json!({"pattern": "x", "path": "missing"})).await), "file.not_found");
}

#[tokio::test]
async fn a_pattern_made_to_run_for_ever_takes_linear_time() {
    let fixture = Fixture::new();
    let agent = fixture.agent();
    done(agent.write("a.txt", &"a".repeat(50_000)).await);
    assert_eq!(agent.text(GREP, json!({"pattern": "^(a+)+$x"})).await, "(Nothing matches.)");
}

#[tokio::test]
async fn long_matching_lines_are_cut() {
    let fixture = Fixture::new();
    let agent = fixture.agent();
    done(agent.write("a.txt", &format!("{}\n", "ab".repeat(1_000))).await);
    let text = agent.text(GREP, json!({"pattern": "ab"})).await;
    assert!(text.ends_with('…') && text.chars().count() < 400, "{text}");
}
