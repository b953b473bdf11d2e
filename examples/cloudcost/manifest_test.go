package cloudcost_test

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"go.arco.dev/servo"
	"go.arco.dev/servo/examples/cloudcost"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/plan"
	"go.arco.dev/servo/internal/domain/schedule"
)

func manifest(t *testing.T) *asset.Manifest {
	t.Helper()
	m, err := asset.Parse(cloudcost.Manifest, "servo.yaml")
	require.NoError(t, err)
	return m
}

func TestManifest(t *testing.T) {
	t.Parallel()
	m := manifest(t)

	t.Run("every asset has its function, and its tasks go to the pool of the worker", func(t *testing.T) {
		t.Parallel()
		w := servo.NewWorker(servo.WorkerOptions{})
		cloudcost.New(cloudcost.Options{}).Register(w)
		var handlers []string
		for _, a := range m.Assets {
			require.NotNil(t, a.Go, a.Key)
			require.Equal(t, cloudcost.Pool, a.Pool, a.Key)
			require.NotEmpty(t, a.Owners, a.Key)
			handlers = append(handlers, a.Go.Handler)
		}
		require.ElementsMatch(t, w.Assets(), handlers)
	})

	t.Run("both pipelines plan for every provider", func(t *testing.T) {
		t.Parallel()
		want := map[string][]string{
			"cost_billing":   {"cost/extract", "cost/transform", "cost/load"},
			"security_audit": {"security/extract", "security/transform", "security/load"},
		}
		for pipeline, keys := range want {
			for _, provider := range cloudcost.Providers() {
				made, err := plan.New(m, plan.Request{Pipeline: pipeline, Parameters: json.RawMessage(`{"provider": "` + provider + `", "account": "1234"}`)})
				require.NoError(t, err)
				require.Equal(t, keys, made.Keys())

				var p cloudcost.Params
				require.NoError(t, json.Unmarshal(made.Parameters, &p))
				require.Equal(t, cloudcost.Params{Provider: provider, Account: "1234", Days: 7, Credentials: "valid", LatencyMS: 150}, p)
			}
		}
	})

	t.Run("an unknown provider is refused before anything runs", func(t *testing.T) {
		t.Parallel()
		_, err := plan.New(m, plan.Request{Pipeline: "cost_billing", Parameters: json.RawMessage(`{"provider": "DEC", "account": "1234"}`)})
		require.ErrorContains(t, err, "provider")
	})

	t.Run("runs for one account exclude each other, others do not", func(t *testing.T) {
		t.Parallel()
		lockOf := func(pipeline, parameters string) string {
			p, ok := m.Pipeline(pipeline)
			require.True(t, ok)
			key, err := asset.NewLockKey(p)
			require.NoError(t, err)
			name, err := key.Of("default", json.RawMessage(parameters))
			require.NoError(t, err)
			return name
		}
		one := lockOf("cost_billing", `{"provider": "AWS", "account": "1"}`)
		require.Equal(t, one, lockOf("cost_billing", `{"provider": "AWS", "account": "1", "days": 2}`))
		require.NotEqual(t, one, lockOf("cost_billing", `{"provider": "AWS", "account": "2"}`))
		require.NotEqual(t, one, lockOf("cost_billing", `{"provider": "GCP", "account": "1"}`))
		require.NotEqual(t, one, lockOf("security_audit", `{"provider": "AWS", "account": "1"}`))
	})
}

// config is a file of configs, field by field.
type config struct {
	Name       string            `yaml:"name"`
	Workspace  string            `yaml:"workspace"`
	Pipeline   string            `yaml:"pipeline"`
	Labels     map[string]string `yaml:"labels"`
	Parameters map[string]any    `yaml:"parameters"`
	Priority   int               `yaml:"priority"`
	Trigger    struct {
		Cron     string        `yaml:"cron"`
		Template string        `yaml:"template"`
		Interval time.Duration `yaml:"interval"`
		Manual   bool          `yaml:"manual"`
		Event    *struct {
			Config string `yaml:"config"`
			Name   string `yaml:"name"`
		} `yaml:"event"`
	} `yaml:"trigger"`
	Timezone  string `yaml:"timezone"`
	DependsOn *struct {
		Config string        `yaml:"config"`
		Within time.Duration `yaml:"within"`
		Wait   time.Duration `yaml:"wait"`
	} `yaml:"depends_on"`
	Overlap string `yaml:"overlap"`
	Catchup struct {
		Policy   string        `yaml:"policy"`
		MaxSlots int           `yaml:"max_slots"`
		Window   time.Duration `yaml:"window"`
	} `yaml:"catchup"`
	Jitter                 time.Duration `yaml:"jitter"`
	MaxExecution           time.Duration `yaml:"max_execution"`
	SLAStartDelay          time.Duration `yaml:"sla_start_delay"`
	MaxConsecutiveFailures int           `yaml:"max_consecutive_failures"`
}

// schedule is the config's trigger in the terms of package schedule.
func (c config) schedule(t *testing.T) (*schedule.Schedule, error) {
	t.Helper()
	trigger := schedule.Trigger{Kind: schedule.Manual}
	switch on := c.Trigger; {
	case on.Cron != "":
		trigger = schedule.Trigger{Kind: schedule.Cron, Cron: on.Cron}
	case on.Template != "":
		expression, known := schedule.Resolve(on.Template)
		require.True(t, known, on.Template)
		trigger = schedule.Trigger{Kind: schedule.Cron, Cron: expression}
	case on.Interval != 0:
		trigger = schedule.Trigger{Kind: schedule.Interval, Interval: on.Interval}
	case on.Event != nil:
		trigger = schedule.Trigger{Kind: schedule.Event, Event: &schedule.EventTrigger{Config: on.Event.Config, Name: on.Event.Name}}
	default:
		require.True(t, on.Manual, "a trigger of a kind that is known")
	}
	zone := c.Timezone
	if zone == "" {
		zone = "UTC"
	}
	return schedule.Parse(trigger, zone)
}

// configs are the configs of each tenant, by name.
func configs(t *testing.T) map[string]map[string]config {
	t.Helper()
	all := map[string]map[string]config{}
	require.NoError(t, fs.WalkDir(cloudcost.Configs, "configs", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := cloudcost.Configs.ReadFile(name)
		require.NoError(t, err)
		var c config
		decoder := yaml.NewDecoder(bytes.NewReader(data))
		decoder.KnownFields(true)
		require.NoError(t, decoder.Decode(&c), name)
		tenant := path.Base(path.Dir(name))
		require.Equal(t, tenant+"-"+strings.TrimSuffix(path.Base(name), ".yaml"), c.Name, "a file is named as its config")
		if all[tenant] == nil {
			all[tenant] = map[string]config{}
		}
		all[tenant][c.Name] = c
		return nil
	}))
	return all
}

func TestConfigs(t *testing.T) {
	t.Parallel()
	m, all := manifest(t), configs(t)
	require.Len(t, all, 3)
	for tenant, own := range all {
		for name, c := range own {
			t.Run("the schedule, the parameters and the references are right of "+name, func(t *testing.T) {
				t.Parallel()
				_, err := c.schedule(t)
				require.NoError(t, err)

				pipeline, known := m.Pipeline(c.Pipeline)
				require.True(t, known, c.Pipeline)
				parameters, err := json.Marshal(c.Parameters)
				require.NoError(t, err)
				_, err = asset.ValidateParameters(pipeline, parameters)
				require.NoError(t, err)
				require.Equal(t, c.Parameters["provider"], c.Labels["provider"])

				if c.DependsOn != nil {
					require.Contains(t, own, c.DependsOn.Config, "of the same tenant, %s", tenant)
					require.NotEqual(t, name, c.DependsOn.Config)
				}
				if event := c.Trigger.Event; event != nil && event.Config != "" {
					require.Contains(t, own, event.Config, "of the same tenant, %s", tenant)
				}
				require.Contains(t, []string{"", "skip", "buffer_one", "buffer_all", "allow", "cancel_running"}, c.Overlap)
				require.Contains(t, []string{"", "latest", "all", "none"}, c.Catchup.Policy)
				require.Contains(t, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, c.Priority)
			})
		}
	}
}

func TestConfigsShowTheirSettings(t *testing.T) {
	t.Parallel()
	all := configs(t)

	t.Run("one config fails always, the others find their cloud", func(t *testing.T) {
		t.Parallel()
		a, _ := setup(t)
		for _, own := range all {
			for name, c := range own {
				given, err := json.Marshal(c.Parameters)
				require.NoError(t, err)
				p := cloudcost.Params{Days: 7}
				require.NoError(t, json.Unmarshal(given, &p))
				p.LatencyMS = 0
				if _, err = a.SecurityExtract(t.Context(), task(nil).Task, p); name == "globex-aws-expired" {
					require.Equal(t, servo.AuthenticationFailed, codeOf(t, err))
				} else {
					require.NoError(t, err, name)
				}
			}
		}
	})

	t.Run("two configs of globex meet the clock change of their zone once a year, and fire nevertheless", func(t *testing.T) {
		t.Parallel()
		for _, name := range []string{"globex-azure-cost", "globex-azure-security"} {
			s, err := all["globex"][name].schedule(t)
			require.NoError(t, err)
			slots, gaps := 0, 0
			for slot := range s.All(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)) {
				slots++
				if s.Shift(slot) == schedule.GapShift {
					gaps++
				}
			}
			require.Equal(t, 365, slots, name)
			require.Equal(t, 1, gaps, name)
		}
	})
}
