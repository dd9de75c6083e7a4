use super::*;

fn parse(text: &str) -> Result<Settings> {
    Settings::resolve(toml::from_str(text).map_err(|e| Failure::usage(e.to_string()))?)
}

#[test]
fn settings_round_trip() {
    for role in [ProcessRole::Brick, ProcessRole::Peer, ProcessRole::Meta] {
        let given = PartialSettings { role: Some(role), ..PartialSettings::default() };
        let first = Settings::resolve(given).unwrap();
        let again = parse(&first.to_toml()).unwrap();
        assert_eq!(format!("{first:?}"), format!("{again:?}"));
    }
    let mut odd =
        parse("role = 'brick'\nbuffer_mib = 64\nupload_lease_s = 7\nio_threads = 3\nmax_connections = 9\nunfinished_input_mib = 64\nlog = 'warn'")
            .unwrap();
    odd.data = Some(PathBuf::from("a \"b\"\\\u{7f}\n"));
    odd.http = parse_http_address("127.0.0.1:9").unwrap();
    odd.advertise = vec!["example.org:7".parse().unwrap()];
    odd.meta.push("unix:/run/meta".parse().unwrap());
    assert_eq!(format!("{odd:?}"), format!("{:?}", parse(&odd.to_toml()).unwrap()));
    let auth = "role = 'peer'\ntls_cert = 'c'\ntls_key = 'k'\ntls_ca = 'a'\ntls_client_ca = 'b'\n\
                 tls_require_client_cert = true\ncluster_secret = 's'\nlisten = ['tls:h:1']";
    let auth = parse(auth).unwrap();
    assert_eq!(format!("{auth:?}"), format!("{:?}", parse(&auth.to_toml()).unwrap()));
    let cache = parse("role = 'peer'\ncache_mib = 7").unwrap();
    assert_eq!(format!("{cache:?}"), format!("{:?}", parse(&cache.to_toml()).unwrap()));
    assert_eq!(cache.config().unwrap().cache_bytes, 7 << 20);
    let etcd = "role = 'meta'\netcd = ['https://h:1', 'https://h:2']\netcd_namespace = 'mine'\netcd_ca = 'a'\n\
                etcd_cert = 'c'\netcd_key = 'k'\netcd_user = 'u'\netcd_password_file = 'p'";
    let etcd = parse(etcd).unwrap();
    assert_eq!(format!("{etcd:?}"), format!("{:?}", parse(&etcd.to_toml()).unwrap()));
}

#[test]
fn unknown_keys_are_refused_with_their_place() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("brick.toml");
    fs::write(&path, "role = \"brick\"\nlistne = [\"127.0.0.1:0\"]\n").unwrap();
    let failure = PartialSettings::read(&path).unwrap_err().to_string();
    assert!(failure.contains("brick.toml") && failure.contains("line 2") && failure.contains("listne"), "{failure}");
}

#[test]
fn flags_override_the_file_and_paths_are_relative_to_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("brick.toml");
    fs::write(&path, "role = \"brick\"\ndata = \"here\"\nmemory_mib = 7\n").unwrap();
    let flags = PartialSettings { memory_mib: Some(9), ..PartialSettings::default() };
    let settings = Settings::resolve(flags.with_fallback(PartialSettings::read(&path).unwrap()).unwrap()).unwrap();
    assert_eq!((settings.data, settings.memory_mib), (Some(dir.path().join("here")), 9));
    let other = PartialSettings { role: Some(ProcessRole::Peer), ..PartialSettings::default() };
    assert!(other.with_fallback(PartialSettings::read(&path).unwrap()).is_err());
}

#[test]
fn invalid_settings_are_refused() {
    for wrong in [
        "",
        "role = 'peer'\ndata = 'x'",
        "role = 'peer'\nmemory = true",
        "role = 'peer'\nbuffer_mib = 64",
        "role = 'brick'\ncache_mib = 64",
        "role = 'peer'\nupload_lease_s = 64",
        "role = 'meta'\nupload_lease_s = 64",
        "role = 'meta'\nmeta = ['mortar://h']",
        "role = 'brick'\nlisten = ['nowhere']",
        "role = 'brick'\nlisten = ['0.0.0.0:7']",
        "role = 'brick'\nmeta = ['h:1']",
        "role = 'king'",
        "role = 'brick'\ntls_cert = 'x'",
        "role = 'brick'\ntls_client_ca = 'x'",
        "role = 'brick'\ntls_cert = 'x'\ntls_key = 'y'\ntls_require_client_cert = true",
        "role = 'brick'\nlisten = ['tls:127.0.0.1:7']",
        "role = 'brick'\netcd = ['http://h:1']",
        "role = 'meta'\netcd = ['http://h:1']\ndata = 'x'",
        "role = 'meta'\netcd_namespace = 'n'",
        "role = 'meta'\netcd = ['https://h:1']",
        "role = 'meta'\netcd = ['http://h:1']\netcd_ca = 'x'",
        "role = 'meta'\netcd = ['https://h:1']\netcd_ca = 'x'\netcd_cert = 'y'",
        "role = 'meta'\netcd = ['http://h:1']\netcd_user = 'x'",
        "role = 'meta'\netcd = ['http://h:1']\netcd_password_file = 'x'",
        "role = 'meta'\netcd = ['http://h:1']\netcd_user = 'x'\netcd_password_file = 'x'",
        "role = 'meta'\netcd = ['http://[::1]:1', 'https://h:1']\netcd_ca = 'x'\netcd_user = 'x'\netcd_password_file = 'x'",
    ] {
        assert!(parse(wrong).is_err(), "{wrong}");
    }
}
