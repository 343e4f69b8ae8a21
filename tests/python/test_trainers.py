"""The small trainers of examples/trainers: each learns, and goes on where it was."""

import json
import shutil
import subprocess

import pytest
from conftest import CUDA, kill_tree, need, trainer


def run(name, *arguments, **how):
    """Runs a trainer, and returns the lines that it prints. `how` are further arguments of conftest's trainer()."""
    process = trainer(name, *arguments, **how)
    try:
        out, err = process.communicate(timeout=600)
    except subprocess.TimeoutExpired:
        kill_tree(process)
        raise
    assert process.returncode == 0, err[-4000:]
    return out.splitlines()


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_cifar(precision):
    need("torch")
    losses = [json.loads(line)["loss"] for line in run("cifar_torch.py", "--precision", precision)]
    assert len(losses) == 30 and losses[-1] < 0.6 * losses[0]


def test_cifar_goes_on(tmp_path):
    need("torch")
    whole = run("cifar_torch.py", "--epochs", 6)
    begun = run("cifar_torch.py", "--epochs", 3, "--checkpoint", tmp_path / "cifar.pt", "--every", 10)
    # Its checkpoint is that of step 10: the third epoch's first two steps were trained, and the other two were lost.
    rest = run("cifar_torch.py", "--epochs", 6, "--checkpoint", tmp_path / "cifar.pt", "--every", 10)
    assert begun == whole[:3] and rest == whole[2:]


def test_deblur(tmp_path):
    need("torch", "PIL")

    def gain(epochs, *arguments, launcher=()):
        """Returns by how many dB the pictures that were held out became sharper."""
        lines = run("deblur_torch.py", "--data", tmp_path, "--epochs", epochs, *arguments, launcher=launcher)
        found = json.loads(lines[-1])
        return found["restored"] - found["blurred"]

    assert gain(2) > 0.5
    assert gain(2, "--loader", "torch") > 0.5
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2]
    assert gain(1, "--precision", "bfloat16", launcher=torchrun) > 0.2  # slow where the CPU has no bfloat16


def test_lightning(tmp_path):
    need("lightning")
    whole = run("digits_lightning.py", "--folder", tmp_path / "whole", "--epochs", 5)[-1]
    assert float(whole.split()[-1]) < 0.5
    run("digits_lightning.py", "--folder", tmp_path / "parts", "--epochs", 2)
    assert run("digits_lightning.py", "--folder", tmp_path / "parts", "--epochs", 5)[-1] == whole


def test_mpi():
    need("torch", "mpi4py.MPI")
    if not shutil.which("mpirun"):
        pytest.skip("there is no mpirun")
    mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2"]
    both = [json.loads(line)["loss"] for line in run("chess_mpi.py", "--epochs", 3, before=mpirun)]
    alone = [json.loads(line)["loss"] for line in run("chess_mpi.py", "--epochs", 3)]
    assert alone[-1] < 0.8 * alone[0]
    assert both == pytest.approx(alone, rel=1e-3)


def test_jax():
    need("jax")

    def losses(devices):
        lines = run("chess_jax.py", "--epochs", 3, XLA_FLAGS=f"--xla_force_host_platform_device_count={devices}")
        found = [json.loads(line) for line in lines]
        assert [one["devices"] for one in found] == [devices] * 3
        return [one["loss"] for one in found]

    alone = losses(1)
    assert alone[-1] < 0.8 * alone[0]
    assert losses(8) == pytest.approx(alone, rel=1e-3)


def test_keras():
    need("keras", "tensorflow")
    for arguments, backend in [((), "tensorflow"), (("--loader", "tf.data"), "tensorflow"), ((), "jax")]:
        need(backend)
        accuracy = run("digits_keras.py", *arguments, KERAS_BACKEND=backend)[-1]
        assert float(accuracy.split()[-1]) > 0.9, (arguments, backend)


# Ray starts its processes at niceness 15, and gives up when they do not come to life soon: too soon on a busy machine.
RAY = {
    "RAY_worker_niceness": "0",
    "RAY_worker_register_timeout_seconds": "200",
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "200",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
}


def run_ray(folder, *arguments, **environment):
    """Returns where the workers of the Ray trainer were started, and what its epochs gave."""
    lines = run("digits_ray.py", "--folder", folder, "--epochs", 4, "--every", 1, *arguments, **RAY, **environment)
    found = [json.loads(line) for line in lines if line.startswith("{")]
    return [one for one in found if "workers" in one], [one for one in found if "losses" in one]


@pytest.fixture(scope="module")
def unbroken_ray(tmp_path_factory):
    need("torch", "ray.train")
    starts, epochs = run_ray(tmp_path_factory.mktemp("unbroken"), "--workers", 2)
    assert starts == [{"epoch": 0, "step": 0, "workers": 2}]
    return epochs


def test_ray(unbroken_ray):
    assert [one["epoch"] for one in unbroken_ray] == [0, 1, 2, 3] and all(one["exactly_once"] for one in unbroken_ray)
    assert sum(unbroken_ray[3]["losses"]) < 0.4 * sum(unbroken_ray[0]["losses"])


def test_ray_goes_on_after_a_lost_worker(unbroken_ray, tmp_path):
    starts, epochs = run_ray(tmp_path, "--workers", 2, "--lose", "worker")
    assert [(one["epoch"], one["workers"]) for one in starts] == [(0, 2), (1, 2)] and starts[1]["step"] > 0
    assert epochs == unbroken_ray


def test_ray_goes_on_with_fewer_workers(unbroken_ray, tmp_path, monkeypatch):
    from ray.cluster_utils import Cluster

    # After the loss Ray waits this long for two workers, before it is content with one.
    monkeypatch.setitem(RAY, "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", "60")
    for name, value in {**RAY, "LD_LIBRARY_PATH": CUDA}.items():
        monkeypatch.setenv(name, value)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        for _ in range(2):  # what Ray takes for machines, each with room for one worker
            cluster.add_node(num_cpus=1)
        starts, epochs = run_ray(tmp_path, "--workers", 1, 2, "--lose", "machine", RAY_ADDRESS=cluster.address)
    finally:
        cluster.shutdown()
    assert [(one["epoch"], one["workers"]) for one in starts] == [(0, 2), (1, 1)] and starts[1]["step"] > 0
    assert all(one["exactly_once"] for one in epochs)
    for one, wanted in zip(epochs, unbroken_ray, strict=True):
        assert one["losses"] == pytest.approx(wanted["losses"], rel=1e-3)  # gradients are summed in another order
