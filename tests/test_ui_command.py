"""``fltune ui``: which store it opens, where it listens, and what it shows of an address."""


def test_ui_without_a_store_says_so(call, tmp_path):
    code, out, err = call("ui", "--set", f"tracking.root={tmp_path / 'none'}")
    assert (code, out) == (2, "")
    assert "there is no store at" in err
    assert "run a search first" in err
    assert not (tmp_path / "none").exists()


def test_ui_listens_on_this_machine_only(call, tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(
        "fltune.cli.subprocess.call", lambda argv, env: started.append((argv, env)) or 0
    )
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / "mlflow.db").touch()
    code, out, _ = call("ui", "--port", 5077, "--set", f"tracking.root={tmp_path}")
    ((argv, env),) = started
    assert code == 0
    assert argv[argv.index("--host") + 1] == "127.0.0.1"
    assert argv[argv.index("--port") + 1] == "5077"
    assert env["MLFLOW_BACKEND_STORE_URI"] == f"sqlite:///{tmp_path / 'mlflow.db'}"
    assert env["MLFLOW_DISABLE_TELEMETRY"] == "true"
    assert "http://127.0.0.1:5077" in out


def test_ui_of_a_server_names_where_it_is_without_its_password(call, tmp_path, monkeypatch):
    monkeypatch.setattr("fltune.cli.subprocess.call", lambda argv, env: 0)
    place = ("--set", f"tracking.root={tmp_path}")
    code, out, _ = call("ui", "--set", "tracking.uri=http://me:secret@mlflow.invalid:80", *place)
    assert (code, out.strip()) == (0, "MLflow UI: http://me:***@mlflow.invalid:80")
