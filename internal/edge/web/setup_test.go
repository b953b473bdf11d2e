package web_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/devkit/servotest/browser"
	"go.arco.dev/servo/internal/devkit/servotest/servertest"
)

// chromium is the browser of all tests here: starting one takes seconds.
var chromium *browser.Browser //nolint:gochecknoglobals // TestMain has no other way to hand it on

func TestMain(m *testing.M) {
	var err error
	if chromium, err = browser.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	chromium.Close()
	os.Exit(code)
}

// world is a server with a tenant that has a pipeline, and a window of the browser.
type world struct {
	*servertest.Server
	*browser.Window

	t    *testing.T
	conn *grpc.ClientConn
}

// tenant is whose pages are looked at.
const tenant = "acme"

// newWorld starts a server that asks for no keys.
func newWorld(t *testing.T) *world {
	t.Helper()
	server := servertest.Start(t)
	w := &world{Server: server, t: t, conn: server.Dial(t)}
	w.addTenant(tenant)
	w.Window = chromium.Open(t, server.URL)
	return w
}

func (w *world) addTenant(name string) {
	w.t.Helper()
	_, err := servov1.NewTenantServiceClient(w.conn).CreateTenant(w.t.Context(), &servov1.CreateTenantRequest{Name: name})
	require.NoError(w.t, err)
	w.deploy(name)
}

// manifest has a pipeline of four assets: extract, then two that need it, then one that needs
// both. Tests are its workers.
const manifest = `{"version": 1,
	"assets": [
		{"key": "shop/orders", "description": "What was sold.", "go": {"handler": "x"}, "owners": ["data@acme"], "tags": ["shop"]},
		{"key": "shop/clean", "upstream": ["shop/orders"], "go": {"handler": "x"}, "retry": {"max_attempts": 2, "initial_delay": "1h"}},
		{"key": "shop/rates", "upstream": ["shop/orders"], "go": {"handler": "x"}},
		{"key": "shop/report", "upstream": ["shop/clean", "shop/rates"], "go": {"handler": "x"}}
	],
	"pipelines": [{"name": "shop", "select": ["shop/*"], "parameters": [{"name": "day", "type": "string", "default": "2026-01-01"}]}]}`

func (w *world) deploy(name string) {
	w.t.Helper()
	w.deployManifest(name, manifest)
}

func (w *world) deployManifest(name, text string) {
	w.t.Helper()
	var object structpb.Struct
	require.NoError(w.t, protojson.Unmarshal([]byte(text), &object))
	_, err := servov1.NewDeploymentServiceClient(w.conn).Deploy(w.t.Context(), &servov1.DeployRequest{Tenant: name, Manifest: &object})
	require.NoError(w.t, err)
}

// claim takes the next task, as a worker would, and begins it.
func (w *world) claim() *servov1.Lease {
	w.t.Helper()
	claimed, err := servov1.NewWorkerServiceClient(w.conn).Claim(w.t.Context(), &servov1.ClaimRequest{
		WorkerId: "worker-of-tests", ClaimId: uuid.NewString(), Pools: []string{"default"}, Max: 1, Wait: durationpb.New(30 * time.Second), Lease: durationpb.New(time.Minute), Start: true, Slots: 4,
	})
	require.NoError(w.t, err)
	require.Len(w.t, claimed.GetLeases(), 1)
	return claimed.GetLeases()[0]
}

// report sends a report about a task.
func (w *world) report(item *servov1.ReportItem) {
	w.t.Helper()
	answer, err := servov1.NewWorkerServiceClient(w.conn).Report(w.t.Context(), &servov1.ReportRequest{WorkerId: "worker-of-tests", Items: []*servov1.ReportItem{item}})
	require.NoError(w.t, err)
	require.Nil(w.t, answer.GetAnswers()[0].GetError())
}

func (w *world) complete(l *servov1.Lease) {
	w.t.Helper()
	w.report(&servov1.ReportItem{Lease: l.GetLease(), Action: &servov1.ReportItem_Complete{Complete: &servov1.Complete{Status: servov1.Complete_SUCCESS, Result: structpb.NewStringValue("done")}}})
}

func (w *world) failTask(l *servov1.Lease, code, message string) {
	w.t.Helper()
	w.report(&servov1.ReportItem{Lease: l.GetLease(), Action: &servov1.ReportItem_Fail{Fail: &servov1.Fail{Error: &servov1.Failure{Code: code, Message: message, SuggestedAction: "look at the shop"}}}})
}

// trigger makes a run.
func (w *world) trigger(name string) *servov1.Run {
	w.t.Helper()
	made, err := servov1.NewRunServiceClient(w.conn).TriggerRun(w.t.Context(), &servov1.TriggerRunRequest{Tenant: name, Pipeline: "shop", Note: "tests"})
	require.NoError(w.t, err)
	return made.GetRun()
}

func logLine(l *servov1.Lease, text string) *servov1.ReportItem {
	return &servov1.ReportItem{Lease: l.GetLease(), Action: &servov1.ReportItem_Log{Log: &servov1.LogChunk{Seq: 1, At: timestamppb.Now(), Text: text}}}
}

func progress(l *servov1.Lease, phase string, fraction float32) *servov1.ReportItem {
	return &servov1.ReportItem{Lease: l.GetLease(), Action: &servov1.ReportItem_Progress{Progress: &servov1.Progress{Phase: phase, Fraction: fraction}}}
}

// taskOf is the task of a run that makes an asset.
func (w *world) taskOf(run *servov1.Run, asset string) string {
	w.t.Helper()
	list, err := servov1.NewTaskServiceClient(w.conn).ListTasks(w.t.Context(), &servov1.ListTasksRequest{Tenant: run.GetTenant(), Run: run.GetId(), Asset: asset})
	require.NoError(w.t, err)
	require.Len(w.t, list.GetTasks(), 1)
	return list.GetTasks()[0].GetId()
}
