from tests.derive.test_cycles import *
@pytest.mark.parametrize("a",[(1.0,1.0,.5),(2.5,1.0,.5),(2.5,5.0,.2),(0.1,5.0,.05),(0.1,.5,.2)])
def test_dbg(open_gpu,a):
    i,p,d=a
    gpu = Fake(open_gpu(**duty_cycle(p, d, 1.0, .9)), i)
    last=0
    print("\n",a)
    for n in range(14 if i>=1 else 70):
        page=gpu.run(i)
        f=page("gpu_flops_total", precision="bf16_tensor") or 0
        sh=gpu.share; v=gpu.snapshot.gpus[0].vitals
        cyc=(f-last)/BF16_PER_CYCLE/i/(sh.activity.tensor or 1)/1e6; last=f
        h=gpu._publisher._gpus[list(gpu._publisher._gpus)[0]].shares[None]._history
        print(n, f"GR={sh.activity.engine:.3f} SM={sh.activity.sm:.3f} U={v.utilization.ratio:.3f}/{v.utilization.seconds:.3f} mean={v.mean_sm_clock_hertz and v.mean_sm_clock_hertz/1e6} busy={v.busy_sm_clock_hertz and v.busy_sm_clock_hertz/1e6} f={cyc:.1f} slope={h.slope and h.slope/1e6}")
