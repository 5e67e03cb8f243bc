//! Tests of valid profiles and of every error of a profile.

use proptest::prelude::*;

use super::*;

fn parsed(text: &str) -> Result<Workload, ProfileError> {
    parse(Path::new("dir/p.txt"), text.as_bytes())
}

fn elements(workload: &Workload) -> Vec<usize> {
    workload.tensors.iter().map(TensorSpec::elements).collect()
}

#[test]
fn list_skips_blank_lines_and_comments() {
    let workload = parsed("# a model\n1000\n\n 2048000 # fc\r\n64\n").unwrap();
    assert_eq!(workload.name, "p.txt");
    assert_eq!(elements(&workload), [1000, 2_048_000, 64]);
    assert_eq!(workload.tensors[1].name, "tensor.1");
    assert_eq!(workload.bytes(), 4 * 2_049_064);
    assert_eq!(workload.recorded_backward_ms, None);
    assert_eq!(workload.tensors[2].ready_fraction, 1.0);
}

#[test]
fn list_errors_name_file_and_line() {
    for bad in [
        "0",
        "-5",
        "1.5",
        "99999999999999999999",
        "2147483649",
        "x",
        "1 2",
    ] {
        let message = parsed(&format!("10\n{bad}\n")).unwrap_err().to_string();
        assert!(
            message.contains("dir/p.txt, line 2") && message.contains(bad),
            "{message}"
        );
    }
    assert!(
        parsed(&format!("{}\n", "9".repeat(1000)))
            .unwrap_err()
            .to_string()
            .len()
            < 150
    );
}

#[test]
fn empty_files_are_refused() {
    for text in [
        "",
        "\n\n",
        "# nothing\n",
        r#"{"ronde_profile":1,"tensors":[]}"#,
    ] {
        assert!(
            matches!(parsed(text), Err(ProfileError::Empty { .. })),
            "{text:?}"
        );
    }
}

#[test]
fn files_that_are_no_text_are_refused() {
    let path = Path::new("p");
    assert!(matches!(
        parse(path, b"10\n\0"),
        Err(ProfileError::Binary { offset: 3, .. })
    ));
    assert!(matches!(
        parse(path, b"1\xff"),
        Err(ProfileError::Binary { offset: 1, .. })
    ));
    let missing = load(Path::new("/nonexistent/p.json"))
        .unwrap_err()
        .to_string();
    assert!(missing.contains("/nonexistent/p.json"), "{missing}");
    assert!(matches!(
        load(&std::env::temp_dir()),
        Err(ProfileError::Unreadable { .. })
    ));
    assert!(matches!(
        load(Path::new("/dev/zero")),
        Err(ProfileError::TooLarge { .. })
    ));
    assert!(
        parsed("[{}]")
            .unwrap_err()
            .to_string()
            .contains("ronde timeline")
    );
}

#[test]
fn profile_is_ordered_by_ready_time() {
    let workload = parsed(
        r#"{"ronde_profile":1,"np":2,"costs":{"alpha_us":3},"tensors":[
            {"name":"late","op":"allreduce","dtype":"float32","elements":10,"ready_us":2000},
            {"name":"early","op":"ALLREDUCE","dtype":"float16","elements":20,"ready_us":500.0}]}"#,
    )
    .unwrap();
    let names: Vec<_> = workload
        .tensors
        .iter()
        .map(|tensor| tensor.name.as_str())
        .collect();
    assert_eq!(names, ["early", "late"]);
    assert_eq!(workload.tensors[0].dtype, Dtype::F16);
    assert_eq!(workload.tensors[0].ready_fraction, 0.25);
    assert_eq!(workload.tensors[1].ready_fraction, 1.0);
    assert_eq!(workload.recorded_backward_ms, Some(2.0));
    assert_eq!(workload.bytes(), 20 * 2 + 10 * 4);
}

#[test]
fn profile_without_times_keeps_its_order_and_spreads_evenly() {
    let tensor = |name: &str| format!(r#"{{"name":"{name}","dtype":"float32","elements":1}}"#);
    let text = format!(
        r#"{{"ronde_profile":1,"tensors":[{},{}]}}"#,
        tensor("b"),
        tensor("a")
    );
    let workload = parsed(&text).unwrap();
    assert_eq!(workload.tensors[0].name, "b");
    assert_eq!(workload.tensors[0].ready_fraction, 0.5);
}

#[test]
fn profile_errors_name_what_is_wrong_and_where() {
    let with = |tensor: &str| format!("{{\"ronde_profile\":1,\n\"tensors\":[\n{tensor}]}}");
    for (tensor, expected) in [
        (
            r#"{"name":"a","dtype":"float32","elements":0}"#,
            "`a` has 0 elements",
        ),
        (
            r#"{"name":"a","dtype":"float32","elements":-7}"#,
            "`a` has -7 elements",
        ),
        (
            r#"{"name":"a","dtype":"float32","elements":1.5}"#,
            "`a` has 1.5 elements",
        ),
        (
            r#"{"name":"a","dtype":"float32","elements":1e30}"#,
            "1e+30 elements",
        ),
        (
            r#"{"name":"a","dtype":"f32","elements":1}"#,
            "dtype `f32`; choose one of int16, int32",
        ),
        (
            r#"{"name":"a","op":"broadcast","dtype":"float32","elements":1}"#,
            "op `broadcast`",
        ),
        (
            r#"{"name":"a","dtype":"float32","elements":1,"ready_us":-1}"#,
            "ready_us -1",
        ),
        (
            r#"{"name":"","dtype":"float32","elements":1}"#,
            "empty name",
        ),
        (
            r#"{"dtype":"float32","elements":1}"#,
            "missing field `name`",
        ),
        (r#"{"name":"a""#, "dir/p.txt"),
    ] {
        let message = parsed(&with(tensor)).unwrap_err().to_string();
        assert!(
            message.contains(expected) && message.contains("dir/p.txt, line 3"),
            "{message}"
        );
    }
    let twice = with(&[r#"{"name":"a","dtype":"float32","elements":1}"#; 2].join(","));
    assert!(
        parsed(&twice)
            .unwrap_err()
            .to_string()
            .contains("two tensors are called `a`")
    );
    let half = r#"{"name":"a","dtype":"float32","elements":1,"ready_us":1},
                  {"name":"b","dtype":"float32","elements":1}"#;
    assert!(
        parsed(&with(half))
            .unwrap_err()
            .to_string()
            .contains("`b` has no ready_us")
    );
    let version = parsed("{\n\"ronde_profile\":2,\"tensors\":[]}")
        .unwrap_err()
        .to_string();
    assert!(
        version.contains("line 2") && version.contains("ronde_profile is 2"),
        "{version}"
    );
}

#[test]
fn too_many_tensors_are_refused() {
    let message = parsed(&"1\n".repeat(TENSORS_MAX + 1))
        .unwrap_err()
        .to_string();
    assert!(message.contains("100001 tensors"), "{message}");
}

proptest! {
    #[test]
    fn any_list_of_counts_is_read_back(counts in prop::collection::vec(1usize..=1 << 31, 1..50)) {
        let text: String = counts.iter().map(|count| format!("{count}\n")).collect();
        let workload = parsed(&text).unwrap();
        prop_assert_eq!(elements(&workload), counts);
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(Path::new("p"), &bytes);
    }
}
