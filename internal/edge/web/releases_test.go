package web_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/devkit/servotest/browser"
	"go.arco.dev/servo/internal/devkit/servotest/servertest"
	"go.arco.dev/servo/internal/edge/web/view"
)

// releaseManifest is the manifest of the releases; tests change its texts.
const releaseManifest = `{"version": 1,
	"assets": [{"key": "till/receipts", "description": "First.", "exec": {"command": ["true"]}, "pool": "till", "retry": {"max_attempts": 1}}],
	"pipelines": [{"name": "till", "select": ["till/*"], "parameters": [{"name": "day", "type": "string", "default": "monday"}], "overlap": "allow"}]}`

// releases creates three releases, a channel that is being rolled, and the tenants north and south that follow
// it. The release "broken" would break a config of north.
func (w *world) releases() {
	w.t.Helper()
	for _, r := range []struct{ name, note, from, to string }{
		{"2026.11.1", "first", "", ""}, {"2026.11.2", "retries twice, and a longer text for people", "First.", "Second."}, {"broken", "", `"type": "string", "default": "monday"`, `"type": "integer", "default": 1`},
	} {
		var object structpb.Struct
		require.NoError(w.t, protojson.Unmarshal([]byte(strings.Replace(releaseManifest, r.from, r.to, 1)), &object))
		_, err := servov1.NewReleaseServiceClient(w.conn).CreateRelease(w.t.Context(), &servov1.CreateReleaseRequest{Name: r.name, Note: r.note, Manifest: &object})
		require.NoError(w.t, err)
	}
	channels := servov1.NewReleaseChannelServiceClient(w.conn)
	_, err := channels.CreateReleaseChannel(w.t.Context(), &servov1.CreateReleaseChannelRequest{Name: "stable", Release: "2026.11.1"})
	require.NoError(w.t, err)
	for _, name := range []string{"north", "south"} {
		_, err := servov1.NewTenantServiceClient(w.conn).CreateTenant(w.t.Context(), &servov1.CreateTenantRequest{Name: name})
		require.NoError(w.t, err)
		_, err = channels.FollowChannel(w.t.Context(), &servov1.FollowChannelRequest{Tenant: name, Workspace: "default", Channel: "stable"})
		require.NoError(w.t, err)
	}
	_, err = channels.SetTenantLabels(w.t.Context(), &servov1.SetTenantLabelsRequest{Tenant: "north", Labels: map[string]string{"tier": "internal"}})
	require.NoError(w.t, err)
	day, err := structpb.NewStruct(map[string]any{"day": "tuesday"})
	require.NoError(w.t, err)
	_, err = servov1.NewConfigServiceClient(w.conn).CreateConfig(w.t.Context(), &servov1.CreateConfigRequest{
		Tenant: "north", Name: "closing", Spec: &servov1.ConfigSpec{Pipeline: "till", Trigger: &servov1.ConfigTrigger{Cron: "0 20 * * *"}, Parameters: day},
	})
	require.NoError(w.t, err)
	w.till("north", 0)
	w.roll("2026.11.2")
	w.till("north", 1)
}

// roll rolls the channel in two waves: north, then south.
func (w *world) roll(to string) {
	w.t.Helper()
	_, err := servov1.NewReleaseChannelServiceClient(w.conn).RollChannel(w.t.Context(), &servov1.RollChannelRequest{
		Channel: "stable", Release: to, Waves: []float64{0.01, 100}, Soak: durationpb.New(time.Hour), First: "tier=internal",
	})
	require.NoError(w.t, err)
}

// till runs the pipeline of a tenant twice; some runs fail. The pool is its own, so that other tests of the
// page are not disturbed.
func (w *world) till(name string, failing int) {
	w.t.Helper()
	for i := range 2 {
		_, err := servov1.NewRunServiceClient(w.conn).TriggerRun(w.t.Context(), &servov1.TriggerRunRequest{Tenant: name, Pipeline: "till"})
		require.NoError(w.t, err)
		claimed, err := servov1.NewWorkerServiceClient(w.conn).Claim(w.t.Context(), &servov1.ClaimRequest{
			WorkerId: "till", ClaimId: uuid.NewString(), Pools: []string{"till"}, Max: 1, Wait: durationpb.New(30 * time.Second), Lease: durationpb.New(time.Minute), Start: true, Slots: 1,
		})
		require.NoError(w.t, err)
		require.Len(w.t, claimed.GetLeases(), 1)
		if i < failing {
			w.failTask(claimed.GetLeases()[0], "TILL_EMPTY", "no receipts")
			continue
		}
		w.complete(claimed.GetLeases()[0])
	}
}

func TestReleasePages(t *testing.T) {
	t.Parallel()

	t.Run("a channel shows waves, rates, failures and decisions, and is advanced and rolled back", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.releases()
		w.Go("/ui/releases")
		w.See("2026.11.2")
		require.Equal(t, 1, w.Count(`tr#channel-stable`))
		w.Click("tr#channel-stable a")
		w.See("Rolling to 2026.11.2")
		w.Until(`document.querySelector("main").textContent.includes("50.0 % of 2 runs on 2026.11.2")`) // a loop merges the totals
		require.Contains(t, w.Text("main"), "TILL_EMPTY")
		require.Contains(t, w.Text("main"), "0.0 % of 2 runs of the same configs on 2026.11.1")
		require.Contains(t, w.Text("tr#wave-1"), "north")
		require.Contains(t, w.Text("tr#wave-1"), "current")
		require.Contains(t, w.Text("tr#wave-2"), "later")
		require.Contains(t, w.Text("main"), "rollout from 2026.11.1 to 2026.11.2 started at wave 1 of 2")

		w.Click("[data-dialog=advance]")
		require.Contains(t, w.Text("dialog#advance"), "Moves 1 more tenant to release 2026.11.2")
		w.Click("dialog#advance button[type=submit]")
		w.See("Wave 2 started.")
		w.Click("[data-dialog=rollback]")
		require.Contains(t, w.Text("dialog#rollback"), "New runs of 2 tenants use release 2026.11.1 again. Runs in flight keep 2026.11.2.")
		w.Type("dialog#rollback [name=reason]", "wrong totals")
		w.Click("dialog#rollback button[type=submit]")
		w.See("Rolled back by hand from 2026.11.2 to 2026.11.1")
		w.See("Wrong totals.")
		require.Zero(t, w.Count("[data-dialog=rollback]"), "it is rolled back already")
	})

	t.Run("a roll with wrong input keeps its dialog, and a good one starts", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.Allow("400")
		w.Allow("409")
		w.releases()
		_, err := servov1.NewReleaseChannelServiceClient(w.conn).RollBackChannel(t.Context(), &servov1.RollBackChannelRequest{Channel: "stable"})
		require.NoError(t, err)
		w.Go(view.ChannelPath("stable"))
		set := func(name, text string) {
			browser.Eval[bool](w.Window, fmt.Sprintf(`(() => { document.querySelector("dialog#roll [name=%s]").value = %q; return true })()`, name, text))
		}
		w.Click("[data-dialog=roll]")
		set("release", "broken")
		set("waves", "fifty")
		w.Click("dialog#roll button[type=submit]")
		w.Until(`document.querySelector("dialog#roll[open] label:has([name=waves]) .field-error")`)
		set("waves", "50, 100")
		set("soak", "soon")
		w.Click("dialog#roll button[type=submit]")
		w.Until(`document.querySelector("dialog#roll[open] label:has([name=soak]) .field-error")`)
		set("soak", "1h")
		w.Click("dialog#roll button[type=submit]")
		w.Until(`document.querySelector("dialog#roll[open] .field-error")?.textContent.includes("would break 1 configs")`)
		set("release", "2026.11.2")
		w.Click("dialog#roll button[type=submit]")
		w.See("Rollout started")
		w.See("Rolling to 2026.11.2")
	})

	t.Run("a release shows its changes line by line, and the configs that it would break", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.releases()
		w.Go(view.ReleasePath("2026.11.2"))
		w.See("asset till/receipts")
		require.Contains(t, w.Text(".lines-diff del"), "First.")
		require.Contains(t, w.Text(".lines-diff ins"), "Second.")
		w.Go(view.ReleasePath("broken") + "?channel=stable&with=2026.11.1")
		require.Contains(t, w.Text("main"), "1 config of 1 tenant would break, of 1 config checked")
		require.Contains(t, w.Text("main"), "closing")
		require.Contains(t, w.Text("main"), "pipeline till")
	})

	t.Run("the page of a tenant shows what it follows", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.releases()
		w.Go(view.TenantPath("north"))
		w.See("release 2026.11.2")
		w.Go(view.TenantPath("south") + "?tab=workspaces")
		w.See("release 2026.11.1")
		require.Equal(t, 1, w.Count(`main a[href="/ui/channels/stable"]`))
		w.Go(view.TenantPath(tenant) + "?tab=workspaces")
		w.See("own deployments")
	})
}

func TestReleasesOfAnotherTenant(t *testing.T) {
	t.Parallel()
	server, platform := servertest.StartLocked(t)
	conn := server.Dial(t)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+platform)
	var object structpb.Struct
	require.NoError(t, protojson.Unmarshal([]byte(releaseManifest), &object))
	_, err := servov1.NewReleaseServiceClient(conn).CreateRelease(ctx, &servov1.CreateReleaseRequest{Name: "2026.11.1", Manifest: &object})
	require.NoError(t, err)
	_, err = servov1.NewReleaseChannelServiceClient(conn).CreateReleaseChannel(ctx, &servov1.CreateReleaseChannelRequest{Name: "stable", Release: "2026.11.1", Default: true})
	require.NoError(t, err)
	for _, name := range []string{tenant, "globex"} {
		_, err := servov1.NewTenantServiceClient(conn).CreateTenant(ctx, &servov1.CreateTenantRequest{Name: name})
		require.NoError(t, err)
	}
	made, err := servov1.NewKeyServiceClient(conn).CreateKey(ctx, &servov1.CreateKeyRequest{Tenant: tenant, Name: "portal", Role: "admin"})
	require.NoError(t, err)
	w := chromium.Open(t, server.URL)
	w.Allow("403")
	w.Go("/ui/login?back=/ui/tenants")
	w.Type("#key", made.GetSecret())
	w.Click("button[type=submit]")
	w.See("release 2026.11.1") // of its own workspace
	require.Zero(t, w.Count(`a[href^="/ui/channels"], a[href^="/ui/releases"]`), "no page of the platform is offered")
	for _, at := range []string{"/ui/releases", view.ChannelPath("stable"), view.ReleasePath("2026.11.1")} {
		w.Go(at)
		w.See("Not permitted")
		require.NotContains(t, browser.Eval[string](w, "document.documentElement.outerHTML"), "globex")
	}
}
