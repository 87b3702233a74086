/* SPDX-License-Identifier: Apache-2.0 */
/* What each product answers when the scenario says nothing. */
#include "scenario.h"

#include <stddef.h>
#include <string.h>

#define DATACENTRE_ECC                                                                   \
    "\"ecc\":{\"enabled\":1,\"pending\":1,\"volatile\":{\"corrected\":{\"dram\":0,"      \
    "\"sram\":0},\"uncorrected\":{\"dram\":0,\"sram\":0}},\"aggregate\":{\"corrected\":" \
    "{\"dram\":0,\"sram\":0},\"uncorrected\":{\"dram\":0,\"sram\":0}}}"
#define OLD_ECC_COUNTS                                                            \
    "{\"l1\":0,\"l2\":0,\"dram\":0,\"registers\":0}"
#define OLD_ECC                                                                   \
    "\"ecc\":{\"enabled\":1,\"pending\":1,\"volatile\":{\"corrected\":" OLD_ECC_COUNTS \
    ",\"uncorrected\":" OLD_ECC_COUNTS "},\"aggregate\":{\"corrected\":" OLD_ECC_COUNTS \
    ",\"uncorrected\":" OLD_ECC_COUNTS "}}"
#define ECC_OFF "\"ecc\":{\"enabled\":0,\"pending\":0}"
#define REMAPS                                                                            \
    "\"remapped_rows\":{\"correctable\":0,\"uncorrectable\":0,\"pending\":0,\"failure\":0," \
    "\"correctable_inactive\":0,\"uncorrectable_inactive\":0,"                             \
    "\"histogram\":[640,0,0,0,0]},\"unrepairable_memory\":0"
#define SRAM                                                                               \
    "\"sram\":{\"aggregate_unc_parity\":0,\"aggregate_unc_secded\":0,\"aggregate_cor\":0," \
    "\"volatile_unc_parity\":0,\"volatile_unc_secded\":0,\"volatile_cor\":0,"              \
    "\"bucket_l2\":0,\"bucket_sm\":0,\"bucket_pcie\":0,\"bucket_mcu\":0,"                  \
    "\"bucket_other\":0,\"threshold_exceeded\":0}"
#define RETIREMENT \
    "\"retired_pages\":{\"single_bit\":[],\"double_bit\":[],\"pending\":0}"
#define FABRIC                                                                \
    "\"fabric\":{\"state\":3,\"status\":0,\"clique\":0,\"health_mask\":426,"  \
    "\"health_summary\":1,\"cluster_uuid\":\"00000000000000000000000000000000\"}"

static const struct {
    const char *product;
    const char *json;
} PRESETS[] = {
    {"h100-sxm",
     "{\"name\":\"NVIDIA H100 80GB HBM3\",\"pci_device_id\":9008,\"compute_capability\":[9,0],"
     "\"architecture\":9,\"brand\":14,\"cores\":16896,\"sm_count\":132,\"bus_width\":5120,"
     "\"max_clocks\":{\"graphics\":1980,\"sm\":1980,\"memory\":2619,\"video\":1545},"
     "\"memory\":{\"total\":85520809984,\"reserved\":687865856},"
     "\"bar1\":{\"total\":137438953472},\"idle_power\":70,\"power_window\":1,"
     "\"power_limits\":{\"min\":200,\"max\":700,\"default\":700},"
     "\"temperature\":{\"memory\":38,\"limits\":[-8,-2,0,0]},"
     "\"pcie\":{\"max_generation\":5},"
     "\"nvlink\":{\"links\":18,\"version\":6,\"speed_mbps\":26562,\"family\":\"throughput\"},"
     "\"engines\":{\"nvdec\":7,\"nvjpg\":7,\"ofa\":1,\"nvenc\":0},"
     "\"gpm\":{\"supported\":1},\"mig\":{\"capable\":1}," DATACENTRE_ECC "," REMAPS "," SRAM
     "," FABRIC "}"},
    {"a100-sxm4-80gb",
     "{\"name\":\"NVIDIA A100-SXM4-80GB\",\"pci_device_id\":8370,\"compute_capability\":[8,0],"
     "\"architecture\":7,\"brand\":14,\"cores\":6912,\"sm_count\":108,\"bus_width\":5120,"
     "\"max_clocks\":{\"graphics\":1410,\"sm\":1410,\"memory\":1593,\"video\":1290},"
     "\"memory\":{\"total\":85899345920,\"reserved\":566231040},"
     "\"bar1\":{\"total\":137438953472},\"idle_power\":60,"
     "\"power_limits\":{\"min\":100,\"max\":400,\"default\":400},\"temperature\":{\"memory\":38},"
     "\"pcie\":{\"max_generation\":4},"
     "\"nvlink\":{\"links\":12,\"version\":4,\"speed_mbps\":25781,\"family\":\"throughput\"},"
     "\"mig\":{\"capable\":1}," DATACENTRE_ECC "," REMAPS "," SRAM "," FABRIC "}"},
    {"v100-sxm2",
     "{\"name\":\"Tesla V100-SXM2-16GB\",\"pci_device_id\":7601,\"compute_capability\":[7,0],"
     "\"architecture\":5,\"brand\":2,\"cores\":5120,\"sm_count\":80,\"bus_width\":4096,"
     "\"max_clocks\":{\"graphics\":1530,\"sm\":1530,\"memory\":877,\"video\":1372},"
     "\"memory\":{\"total\":16944988160,\"reserved\":367001600},"
     "\"bar1\":{\"total\":17179869184},\"idle_power\":40,"
     "\"power_limits\":{\"min\":150,\"max\":300,\"default\":300},\"temperature\":{\"memory\":36},"
     "\"pcie\":{\"max_generation\":3},"
     "\"nvlink\":{\"links\":6,\"version\":3,\"speed_mbps\":25781,\"family\":\"throughput\"},"
     OLD_ECC "," RETIREMENT "}"},
    {"t4",
     "{\"name\":\"Tesla T4\",\"pci_device_id\":7864,\"compute_capability\":[7,5],"
     "\"architecture\":6,\"brand\":2,\"cores\":2560,\"sm_count\":40,\"bus_width\":256,"
     "\"max_clocks\":{\"graphics\":1590,\"sm\":1590,\"memory\":5001,\"video\":1470},"
     "\"memory\":{\"total\":16106127360,\"reserved\":471859200},"
     "\"bar1\":{\"total\":268435456},\"idle_power\":10,"
     "\"power_limits\":{\"min\":60,\"max\":70,\"default\":70},"
     "\"pcie\":{\"max_generation\":3}," OLD_ECC "," RETIREMENT "}"},
    {"rtx-4090",
     "{\"name\":\"NVIDIA GeForce RTX 4090\",\"pci_device_id\":9860,"
     "\"compute_capability\":[8,9],\"architecture\":8,\"brand\":5,\"cores\":16384,"
     "\"sm_count\":128,\"bus_width\":384,"
     "\"max_clocks\":{\"graphics\":2520,\"sm\":2520,\"memory\":10501,\"video\":1950},"
     "\"memory\":{\"total\":25757220864,\"reserved\":524288000},"
     "\"bar1\":{\"total\":34359738368},\"idle_power\":20,\"power_window\":1,"
     "\"power_limits\":{\"min\":150,\"max\":600,\"default\":450},\"serial\":null,"
     "\"fans\":[30,30],\"pcie\":{\"max_generation\":4}," ECC_OFF "}"},
    {"l40s",
     "{\"name\":\"NVIDIA L40S\",\"pci_device_id\":9913,\"compute_capability\":[8,9],"
     "\"architecture\":8,\"brand\":14,\"cores\":18176,\"sm_count\":142,\"bus_width\":384,"
     "\"max_clocks\":{\"graphics\":2520,\"sm\":2520,\"memory\":9001,\"video\":1965},"
     "\"memory\":{\"total\":48305799168,\"reserved\":597688320},"
     "\"bar1\":{\"total\":68719476736},\"idle_power\":35,\"power_window\":1,"
     "\"power_limits\":{\"min\":100,\"max\":350,\"default\":350},"
     "\"pcie\":{\"max_generation\":4}," DATACENTRE_ECC "," REMAPS "," SRAM "}"},
    {"b200",
     "{\"name\":\"NVIDIA B200\",\"pci_device_id\":10497,\"compute_capability\":[10,0],"
     "\"architecture\":10,\"brand\":14,\"cores\":18944,\"sm_count\":148,\"bus_width\":7680,"
     "\"max_clocks\":{\"graphics\":1965,\"sm\":1965,\"memory\":3996,\"video\":1545},"
     "\"memory\":{\"total\":192265846784,\"reserved\":741343232},"
     "\"bar1\":{\"total\":274877906944},\"idle_power\":140,\"power_window\":1,"
     "\"power_limits\":{\"min\":200,\"max\":1000,\"default\":1000},"
     "\"temperature\":{\"memory\":38,\"limits\":[-8,-2,0,0]},"
     "\"pcie\":{\"max_generation\":5},"
     "\"nvlink\":{\"links\":18,\"version\":7,\"speed_mbps\":53125,\"family\":\"count\"},"
     "\"engines\":{\"nvdec\":7,\"nvjpg\":7,\"ofa\":1,\"nvenc\":0},"
     "\"gpm\":{\"supported\":1},\"mig\":{\"capable\":1}," DATACENTRE_ECC "," REMAPS "," SRAM
     "," FABRIC "}"},
    {"unknown",
     "{\"name\":\"NVIDIA Graphics Device\",\"pci_device_id\":16383,"
     "\"compute_capability\":[19,0],\"architecture\":4294967295,\"brand\":0,\"cores\":8192,"
     "\"sm_count\":64,\"bus_width\":512,"
     "\"max_clocks\":{\"graphics\":2000,\"sm\":2000,\"memory\":2000,\"video\":1500},"
     "\"memory\":{\"total\":34359738368,\"reserved\":536870912},"
     "\"bar1\":{\"total\":34359738368},\"idle_power\":50,"
     "\"power_limits\":{\"min\":100,\"max\":300,\"default\":300},"
     "\"pcie\":{\"max_generation\":5}," ECC_OFF "}"},
};

const char DEFAULTS[] =
    "{\"utilization\":0,\"memory_utilization\":0,\"encoder_utilization\":0,"
    "\"decoder_utilization\":0,\"jpeg_utilization\":0,\"ofa_utilization\":0,"
    "\"board_part_number\":\"900-21010-0000-000\",\"vbios\":\"96.00.A5.00.01\","
    "\"numa_node\":0,\"pci_subsystem_id\":381620446,\"energy\":0,"
    "\"modes\":{\"persistence\":1,\"compute\":0,\"virtualization\":0,\"accounting\":0,"
    "\"display_active\":0,\"display_mode\":0},"
    "\"memory\":{\"used\":0},\"bar1\":{\"used\":0},"
    "\"temperature\":{\"gpu\":35,\"margin\":50,\"thresholds\":{\"shutdown\":95,"
    "\"slowdown\":92,\"memory_max\":95,\"gpu_max\":87}},"
    "\"clock_event_reasons\":1,\"supported_clock_event_reasons\":511,\"performance_state\":0,"
    "\"fans\":[],\"processes\":{\"compute\":[],\"graphics\":[],\"mps\":[]},"
    "\"throttle\":{\"power\":0,\"thermal\":0,\"sync_boost\":0,\"board_limit\":0,"
    "\"low_utilization\":0,\"reliability\":0,\"app_clocks\":0,\"base_clocks\":0,"
    "\"sw_thermal\":0,\"hw_thermal\":0,\"hw_power_brake\":0},"
    "\"pcie\":{\"max_width\":16,\"tx\":0,\"rx\":0,\"replays\":0,\"replay_rollover\":0,"
    "\"l0_to_recovery\":0,\"errors\":{\"correctable\":0,\"naks_received\":0,"
    "\"receiver_error\":0,\"bad_tlp\":0,\"naks_sent\":0,\"bad_dllp\":0,\"non_fatal\":0,"
    "\"fatal\":0,\"unsupported_request\":0,\"lcrc\":0,\"lane\":0}},"
    "\"nvlink\":{\"links\":0,\"tx\":0,\"rx\":0,\"errors\":{\"crc_flit\":0,\"crc_data\":0,"
    "\"replay\":0,\"recovery\":0},\"remote_type\":2},"
    "\"mig\":{\"capable\":0},\"recovery_action\":0,\"sample_period\":0.16666666666666666,"
    "\"samples\":{\"enabled\":1,\"depth\":100,\"types\":[0,1,2,3,4,5,6]},"
    "\"gpm\":{\"supported\":0,\"cumulative\":0,\"cycles\":\"summed\",\"graphics\":0,\"sm\":0,"
    "\"occupancy\":0,\"int\":0,\"tensor\":0,\"hmma\":0,\"imma\":0,\"dmma\":0,\"dfma\":0,"
    "\"dram\":0,\"fp64\":0,\"fp32\":0,\"fp16\":0,\"nvdec\":0,\"nvjpg\":0,\"ofa\":0,"
    "\"nvenc\":0,\"unsupported_ids\":[],\"nan_ids\":[]},"
    "\"engines\":{\"nvdec\":1,\"nvjpg\":0,\"ofa\":0,\"nvenc\":1},\"event_types\":31}";

const char *product_preset(const char *product)
{
    for (size_t i = 0; i < sizeof PRESETS / sizeof *PRESETS; i++)
        if (strcmp(PRESETS[i].product, product) == 0)
            return PRESETS[i].json;
    return "{}";
}
