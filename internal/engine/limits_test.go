package engine_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// Texts that no field takes.
const (
	zeroByte = "a\x00b"
	notUTF8  = "a\xff\xfe"
)

func long(n int) string { return strings.Repeat("x", n) }

// everything counts the rows of all tables and sums up what may change in them.
const everything = `
SELECT (SELECT count(*) FROM servo.tenants) + (SELECT count(*) FROM servo.workspaces) + (SELECT count(*) FROM servo.deployments)
     + (SELECT count(*) FROM servo.entity_events) + (SELECT count(*) FROM servo.run_events) + (SELECT count(*) FROM servo.runs)
     + (SELECT count(*) FROM servo.tasks) + (SELECT count(*) FROM servo.edges) + (SELECT count(*) FROM servo.idempotency_keys)
     + (SELECT count(*) FROM servo.heartbeats) + (SELECT count(*) FROM servo.cones)
     + (SELECT coalesce(sum(version), 0) FROM servo.leases) + (SELECT coalesce(sum(version), 0) FROM servo.runs)
     + (SELECT coalesce(sum(state), 0) FROM servo.task_states)`

// bad is one input that must be refused, and how.
type bad struct {
	code  fault.Code
	field string
	call  func(t *testing.T, b *bundle) error
}

// refused runs a table of bad inputs: each is answered with a fault that helps, nothing is
// stored, and no other tenant is affected.
func refused(t *testing.T, b *bundle, table map[string]bad) {
	t.Helper()
	before := b.db.Count(t, everything)
	for name, c := range table {
		t.Run(name, func(t *testing.T) { // one after the other: they share what must not change
			err := c.call(t, b)
			requireFault(t, err, c.code)
			f, _ := fault.As(err)
			require.Equal(t, c.field, f.Violation.Field, f.Error())
			for _, text := range []string{f.Message, f.Violation.Remedy} {
				require.Less(t, len(text), 500, "the message is short")
				require.NotContains(t, text, "SQLSTATE")
			}
			require.Equal(t, before, b.db.Count(t, everything), "something was stored")
		})
	}
	verifytest.Clean(t, b.db)
}

func TestBadTrigger(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.deploy(t, manifestText+`
  - {name: typed, overlap: allow, select: [s/one], parameters: [{name: day, type: string, required: true}, {name: n, type: integer}]}
`)
	_, err := b.CreateWorkspace(t.Context(), b.tenant, "bare", engineMeta)
	require.NoError(t, err)
	trigger := func(change func(*engine.Trigger)) func(*testing.T, *bundle) error {
		return func(t *testing.T, b *bundle) error {
			t.Helper()
			r := engine.Trigger{Tenant: b.tenant, Pipeline: "single"}
			change(&r)
			_, err := b.TriggerRun(t.Context(), r)
			return err
		}
	}
	retry := func(p run.RetryPolicy) func(*engine.Trigger) {
		return func(r *engine.Trigger) { r.Retry = &p }
	}
	refused(t, b, map[string]bad{
		"no tenant":                 {fault.NotFound, "workspace", trigger(func(r *engine.Trigger) { r.Tenant = id.Tenant{} })},
		"another tenant's":          {fault.NotFound, "workspace", trigger(func(r *engine.Trigger) { r.Tenant = id.Of[id.Tenant](newClaim().UUID) })},
		"unknown workspace":         {fault.NotFound, "workspace", trigger(func(r *engine.Trigger) { r.Workspace = "nope" })},
		"workspace with zero byte":  {fault.InvalidArgument, "workspace", trigger(func(r *engine.Trigger) { r.Workspace = zeroByte })},
		"workspace not UTF-8":       {fault.InvalidArgument, "workspace", trigger(func(r *engine.Trigger) { r.Workspace = notUTF8 })},
		"huge workspace":            {fault.InvalidArgument, "workspace", trigger(func(r *engine.Trigger) { r.Workspace = long(1 << 20) })},
		"nothing deployed":          {fault.Conflict, "workspace", trigger(func(r *engine.Trigger) { r.Workspace = "bare" })},
		"unknown pipeline":          {fault.InvalidArgument, "pipeline", trigger(func(r *engine.Trigger) { r.Pipeline = "singel" })},
		"pipeline with zero byte":   {fault.InvalidArgument, "pipeline", trigger(func(r *engine.Trigger) { r.Pipeline = zeroByte })},
		"huge pipeline":             {fault.InvalidArgument, "pipeline", trigger(func(r *engine.Trigger) { r.Pipeline = long(1 << 20) })},
		"pipeline and selection":    {fault.InvalidArgument, "select", trigger(func(r *engine.Trigger) { r.Select = []string{"s/one"} })},
		"selection of nothing":      {fault.InvalidArgument, "select[0]", trigger(func(r *engine.Trigger) { r.Pipeline, r.Select = "", []string{"tag:none"} })},
		"selection of unknown":      {fault.InvalidArgument, "select[0]", trigger(func(r *engine.Trigger) { r.Pipeline, r.Select = "", []string{"s/two"} })},
		"broken selection":          {fault.InvalidArgument, "select[0]", trigger(func(r *engine.Trigger) { r.Pipeline, r.Select = "", []string{zeroByte} })},
		"parameters not JSON":       {fault.InvalidArgument, "parameters", trigger(func(r *engine.Trigger) { r.Parameters = []byte(`{`) })},
		"parameters not an object":  {fault.InvalidArgument, "parameters", trigger(func(r *engine.Trigger) { r.Parameters = []byte(`[]`) })},
		"unknown parameter":         {fault.InvalidArgument, "parameters.x", trigger(func(r *engine.Trigger) { r.Parameters = []byte(`{"x": 1}`) })},
		"missing parameter":         {fault.InvalidArgument, "parameters.day", trigger(func(r *engine.Trigger) { r.Pipeline = "typed" })},
		"parameter of another type": {fault.InvalidArgument, "parameters.n", trigger(func(r *engine.Trigger) { r.Pipeline, r.Parameters = "typed", []byte(`{"day": "x", "n": 1.5}`) })},
		"huge parameters":           {fault.LimitExceeded, "parameters", trigger(func(r *engine.Trigger) { r.Parameters = []byte(`{"x": "` + long(1<<20) + `"}`) })},
		"priority below":            {fault.InvalidArgument, "priority", trigger(func(r *engine.Trigger) { r.Priority = -1 })},
		"priority above":            {fault.InvalidArgument, "priority", trigger(func(r *engine.Trigger) { r.Priority = 11 })},
		"huge key":                  {fault.InvalidArgument, "idempotency_key", trigger(func(r *engine.Trigger) { r.IdempotencyKey = long(256) })},
		"key with zero byte":        {fault.InvalidArgument, "idempotency_key", trigger(func(r *engine.Trigger) { r.IdempotencyKey = zeroByte })},
		"key not UTF-8":             {fault.InvalidArgument, "idempotency_key", trigger(func(r *engine.Trigger) { r.IdempotencyKey = notUTF8 })},
		"huge triggered_by":         {fault.LimitExceeded, "triggered_by", trigger(func(r *engine.Trigger) { r.TriggeredBy = long(201) })},
		"triggered_by not UTF-8":    {fault.InvalidArgument, "triggered_by", trigger(func(r *engine.Trigger) { r.TriggeredBy = notUTF8 })},
		"huge trigger_type":         {fault.LimitExceeded, "trigger_type", trigger(func(r *engine.Trigger) { r.TriggerType = long(101) })},
		"trigger_type zero byte":    {fault.InvalidArgument, "trigger_type", trigger(func(r *engine.Trigger) { r.TriggerType = zeroByte })},
		"attempts below":            {fault.InvalidArgument, "retry.max_attempts", trigger(retry(run.RetryPolicy{MaxAttempts: -1}))},
		"attempts above":            {fault.InvalidArgument, "retry.max_attempts", trigger(retry(run.RetryPolicy{MaxAttempts: 101}))},
		"delay below":               {fault.InvalidArgument, "retry.initial_delay", trigger(retry(run.RetryPolicy{InitialDelay: -time.Second}))},
		"delay above":               {fault.InvalidArgument, "retry.max_delay", trigger(retry(run.RetryPolicy{MaxDelay: math.MaxInt64}))},
		"multiplier NaN":            {fault.InvalidArgument, "retry.multiplier", trigger(retry(run.RetryPolicy{Multiplier: math.NaN()}))},
		"multiplier infinite":       {fault.InvalidArgument, "retry.multiplier", trigger(retry(run.RetryPolicy{Multiplier: math.Inf(1)}))},
		"jitter above":              {fault.InvalidArgument, "retry.jitter", trigger(retry(run.RetryPolicy{Jitter: 1.5}))},
		"growth NaN":                {fault.InvalidArgument, "retry.timeout_growth", trigger(retry(run.RetryPolicy{TimeoutGrowth: math.NaN()}))},
		"retry_on not a code":       {fault.InvalidArgument, "retry.retry_on[0]", trigger(retry(run.RetryPolicy{RetryOn: []string{zeroByte}}))},
		"many codes":                {fault.InvalidArgument, "retry.no_retry_on", trigger(retry(run.RetryPolicy{NoRetryOn: make([]string, 101)}))},
		"actor with zero byte":      {fault.InvalidArgument, "request", trigger(func(r *engine.Trigger) { r.Meta = event.Meta{Actor: zeroByte} })},
	})
}

func TestBadClaim(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.many(t, 1, true)
	b.trigger(t, "single")
	b.admit(t)
	claim := func(change func(*engine.ClaimRequest)) func(*testing.T, *bundle) error {
		return func(t *testing.T, b *bundle) error {
			t.Helper()
			r := engine.ClaimRequest{Worker: "w", Claim: newClaim(), Pools: []string{"default"}, Max: 1}
			change(&r)
			leases, err := b.Claim(t.Context(), r)
			require.Empty(t, leases)
			return err
		}
	}
	refused(t, b, map[string]bad{
		"no worker":             {fault.InvalidArgument, "worker_id", claim(func(r *engine.ClaimRequest) { r.Worker = "" })},
		"huge worker":           {fault.InvalidArgument, "worker_id", claim(func(r *engine.ClaimRequest) { r.Worker = long(201) })},
		"worker with zero byte": {fault.InvalidArgument, "worker_id", claim(func(r *engine.ClaimRequest) { r.Worker = zeroByte })},
		"worker not UTF-8":      {fault.InvalidArgument, "worker_id", claim(func(r *engine.ClaimRequest) { r.Worker = notUTF8 })},
		"no claim id":           {fault.InvalidArgument, "claim_id", claim(func(r *engine.ClaimRequest) { r.Claim = id.Claim{} })},
		"nothing wanted":        {fault.InvalidArgument, "max", claim(func(r *engine.ClaimRequest) { r.Max = 0 })},
		"less than nothing":     {fault.InvalidArgument, "max", claim(func(r *engine.ClaimRequest) { r.Max = math.MinInt })},
		"too much":              {fault.InvalidArgument, "max", claim(func(r *engine.ClaimRequest) { r.Max = engine.MaxClaim + 1 })},
		"no pools":              {fault.InvalidArgument, "pools", claim(func(r *engine.ClaimRequest) { r.Pools = nil })},
		"too many pools":        {fault.InvalidArgument, "pools", claim(func(r *engine.ClaimRequest) { r.Pools = make([]string, 101) })},
		"empty pool":            {fault.InvalidArgument, "pools", claim(func(r *engine.ClaimRequest) { r.Pools = []string{"default", ""} })},
		"huge pool":             {fault.InvalidArgument, "pools", claim(func(r *engine.ClaimRequest) { r.Pools = []string{long(101)} })},
		"pool with zero byte":   {fault.InvalidArgument, "pools", claim(func(r *engine.ClaimRequest) { r.Pools = []string{zeroByte} })},
		"pool not UTF-8":        {fault.InvalidArgument, "pools", claim(func(r *engine.ClaimRequest) { r.Pools = []string{notUTF8} })},
		"short lease":           {fault.InvalidArgument, "lease", claim(func(r *engine.ClaimRequest) { r.Lease = time.Millisecond })},
		"long lease":            {fault.InvalidArgument, "lease", claim(func(r *engine.ClaimRequest) { r.Lease = time.Hour + 1 })},
		"negative lease":        {fault.InvalidArgument, "lease", claim(func(r *engine.ClaimRequest) { r.Lease = -time.Hour })},
	})
}

func TestBadReport(t *testing.T) {
	t.Parallel()
	b := setup(t)
	leases := b.many(t, 2, true)
	running, ended := leases[0], leases[1]
	b.report(t, ended, engine.Complete{})
	b.trigger(t, "single")
	b.admit(t)
	dispatched := b.claim(t, 1, false)[0]
	reporting := func(l engine.Lease, action engine.Action) func(*testing.T, *bundle) error {
		return func(t *testing.T, b *bundle) error {
			t.Helper()
			_, err := b.ReportOne(t.Context(), report(l, action))
			return err
		}
	}
	stale := func(change func(*engine.Report)) func(*testing.T, *bundle) error {
		return func(t *testing.T, b *bundle) error {
			t.Helper()
			r := report(running, engine.Complete{})
			change(&r)
			_, err := b.ReportOne(t.Context(), r)
			return err
		}
	}
	failure := func(f run.Failure) engine.Action { return engine.Fail{Failure: f} }
	tooLong := long(run.MaxCursorLength + 1)
	strange := zeroByte
	refused(t, b, map[string]bad{
		"no task":        {fault.Stale, "lease", stale(func(r *engine.Report) { r.TaskKey = store.TaskKey{} })},
		"no token":       {fault.Stale, "lease", stale(func(r *engine.Report) { r.Token = 0 })},
		"negative token": {fault.Stale, "lease", stale(func(r *engine.Report) { r.Token = math.MinInt64 })},
		"another token":  {fault.Stale, "lease", stale(func(r *engine.Report) { r.Token++ })},
		"another tenant": {fault.Stale, "lease", stale(func(r *engine.Report) { r.Tenant = id.Of[id.Tenant](newClaim().UUID) })},
		"another run":    {fault.Stale, "lease", stale(func(r *engine.Report) { r.Run = ended.Run })},
		"an old lease":   {fault.Stale, "lease", reporting(ended, failure(run.Failure{Code: "X"}))},

		"an old lease and no code": {fault.Stale, "lease", reporting(ended, failure(run.Failure{}))},
		"an old lease, no action":  {fault.Stale, "lease", reporting(ended, nil)},

		"no action":               {fault.InvalidArgument, "action", reporting(running, nil)},
		"a pointer to an action":  {fault.InvalidArgument, "action", reporting(running, &engine.Complete{})},
		"success before start":    {fault.Conflict, "state", reporting(dispatched, engine.Complete{})},
		"cursor before start":     {fault.Conflict, "state", reporting(dispatched, engine.Advance{Next: "1"})},
		"fan-out before start":    {fault.Conflict, "state", reporting(dispatched, engine.FanOut{Tasks: []engine.FanOutTask{{"f/fetch", "0"}}})},
		"cursor from elsewhere":   {fault.Conflict, "expected", reporting(running, engine.Advance{Expected: "7", Next: "8"})},
		"huge cursor":             {fault.LimitExceeded, "next", reporting(running, engine.Advance{Next: tooLong})},
		"cursor with zero byte":   {fault.InvalidArgument, "next", reporting(running, engine.Advance{Next: zeroByte})},
		"cursor not UTF-8":        {fault.InvalidArgument, "next", reporting(running, engine.Advance{Next: notUTF8})},
		"yield to a huge cursor":  {fault.LimitExceeded, "cursor", reporting(running, engine.Yield{Cursor: &tooLong})},
		"yield with zero byte":    {fault.InvalidArgument, "cursor", reporting(running, engine.Yield{Cursor: &strange})},
		"unknown status":          {fault.InvalidArgument, "status", reporting(running, engine.Complete{Status: "GREAT"})},
		"status of a failure":     {fault.InvalidArgument, "status", reporting(running, engine.Complete{Status: run.Poison})},
		"result not JSON":         {fault.InvalidArgument, "result", reporting(running, engine.Complete{Result: []byte(`{`)})},
		"two results":             {fault.InvalidArgument, "result", reporting(running, engine.Complete{Result: []byte(`1 2`)})},
		"result not UTF-8":        {fault.InvalidArgument, "result", reporting(running, engine.Complete{Result: []byte("\"\xff\"")})},
		"huge result":             {fault.LimitExceeded, "result", reporting(running, engine.Complete{Result: []byte(`"` + long(run.MaxResultLength) + `"`)})},
		"zero character":          {fault.InvalidArgument, "request", reporting(running, engine.Complete{Result: []byte(`"\u0000"`)})},
		"lone surrogate":          {fault.InvalidArgument, "request", reporting(running, engine.Complete{Result: []byte(`"\ud800"`)})},
		"number out of range":     {fault.InvalidArgument, "request", reporting(running, engine.Complete{Result: []byte(`1e999999`)})},
		"deep result":             {fault.InvalidArgument, "result", reporting(running, engine.Complete{Result: []byte(strings.Repeat("[", 30_000) + strings.Repeat("]", 30_000))})},
		"failure without code":    {fault.InvalidArgument, "error.code", reporting(running, failure(run.Failure{}))},
		"huge code":               {fault.LimitExceeded, "error.code", reporting(running, failure(run.Failure{Code: long(101)}))},
		"code with zero byte":     {fault.InvalidArgument, "error.code", reporting(running, failure(run.Failure{Code: zeroByte}))},
		"huge message":            {fault.LimitExceeded, "error.message", reporting(running, failure(run.Failure{Code: "X", Message: long(64<<10 + 1)}))},
		"message not UTF-8":       {fault.InvalidArgument, "error.message", reporting(running, failure(run.Failure{Code: "X", Message: notUTF8}))},
		"details not JSON":        {fault.InvalidArgument, "error.details", reporting(running, failure(run.Failure{Code: "X", Details: []byte(`nope`)}))},
		"huge details":            {fault.LimitExceeded, "error.details", reporting(running, failure(run.Failure{Code: "X", Details: []byte(`"` + long(64<<10) + `"`)}))},
		"action with zero byte":   {fault.InvalidArgument, "error.suggested_action", reporting(running, failure(run.Failure{Code: "X", SuggestedAction: zeroByte}))},
		"huge suggested action":   {fault.LimitExceeded, "error.suggested_action", reporting(running, failure(run.Failure{Code: "X", SuggestedAction: long(64<<10 + 1)}))},
		"a failure that may wait": {fault.InvalidArgument, "error.details", reporting(dispatched, failure(run.Failure{Code: "X", Details: []byte(`nope`)}))},
	})
	require.Equal(t, run.Succeeded, b.report(t, running, engine.Complete{}).State, "after all that its lease is as it was")
}

func TestBadFanOut(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.trigger(t, "fan")
	scan := b.one(t)
	fan := func(ordinal int32, tasks ...engine.FanOutTask) func(*testing.T, *bundle) error {
		return func(t *testing.T, b *bundle) error {
			t.Helper()
			_, err := b.ReportOne(t.Context(), report(scan, engine.FanOut{Ordinal: ordinal, Tasks: tasks, Barrier: true}))
			return err
		}
	}
	many := func(n int) []engine.FanOutTask {
		tasks := make([]engine.FanOutTask, n)
		for i := range tasks {
			tasks[i] = engine.FanOutTask{Asset: "f/fetch", Partition: fmt.Sprint(i)}
		}
		return tasks
	}
	one := engine.FanOutTask{Asset: "f/fetch", Partition: "0"}
	refused(t, b, map[string]bad{
		"nothing":              {fault.InvalidArgument, "tasks", fan(0)},
		"too many":             {fault.LimitExceeded, "tasks", fan(0, many(10_001)...)},
		"negative ordinal":     {fault.InvalidArgument, "ordinal", fan(-1, one)},
		"smallest ordinal":     {fault.InvalidArgument, "ordinal", fan(math.MinInt32, one)},
		"ordinal with a gap":   {fault.InvalidArgument, "ordinal", fan(1, one)},
		"largest ordinal":      {fault.InvalidArgument, "ordinal", fan(math.MaxInt32, one)},
		"unknown asset":        {fault.InvalidArgument, "tasks[1].asset", fan(0, one, engine.FanOutTask{Asset: "f/nope"})},
		"no asset":             {fault.InvalidArgument, "tasks[0].asset", fan(0, engine.FanOutTask{})},
		"huge asset":           {fault.InvalidArgument, "tasks[0].asset", fan(0, engine.FanOutTask{Asset: long(1 << 20)})},
		"asset with zero byte": {fault.InvalidArgument, "tasks[0].asset", fan(0, engine.FanOutTask{Asset: zeroByte})},
		"huge partition":       {fault.LimitExceeded, "tasks[0].partition", fan(0, engine.FanOutTask{Asset: "f/fetch", Partition: long(1001)})},
		"partition, zero byte": {fault.InvalidArgument, "tasks[0].partition", fan(0, engine.FanOutTask{Asset: "f/fetch", Partition: zeroByte})},
		"partition, not UTF-8": {fault.InvalidArgument, "tasks[0].partition", fan(0, engine.FanOutTask{Asset: "f/fetch", Partition: notUTF8})},
		"the same twice":       {fault.InvalidArgument, "tasks[1]", fan(0, one, one)},
		"of a lease not one's": {fault.Stale, "lease", func(t *testing.T, b *bundle) error {
			t.Helper()
			return b.reportError(t, engine.Lease{}, engine.FanOut{Tasks: many(1)})
		}},
		"of a task with no run": {fault.Stale, "lease", func(t *testing.T, b *bundle) error {
			t.Helper()
			return b.reportError(t, engine.Lease{TaskKey: store.TaskKey{Task: scan.Task}, Token: scan.Token}, engine.FanOut{Tasks: many(1)})
		}},
	})
}

func TestBadHeartbeat(t *testing.T) {
	t.Parallel()
	b := setup(t)
	lease := b.many(t, 1, true)[0]
	refused(t, b, map[string]bad{
		"too many": {fault.LimitExceeded, "leases", func(t *testing.T, b *bundle) error {
			t.Helper()
			_, err := b.Heartbeats(t.Context(), make([]engine.Heartbeat, 10_001))
			return err
		}},
	})
	answers, err := b.Heartbeats(t.Context(), []engine.Heartbeat{{}, {Key: lease.TaskKey}, {Key: lease.TaskKey, Token: -1}})
	require.NoError(t, err)
	require.Equal(t, []engine.Pulse{{}, {}, {}}, answers, "unknown leases are not alive")
	answers, err = b.Heartbeats(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, answers)
}

func TestBadCancel(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ended := b.many(t, 1, true)[0]
	b.report(t, ended, engine.Complete{})
	key := b.trigger(t, "single")
	cancel := func(change func(*engine.Cancel)) func(*testing.T, *bundle) error {
		return func(t *testing.T, b *bundle) error {
			t.Helper()
			c := engine.Cancel{Tenant: key.Tenant, Run: key.Run}
			change(&c)
			_, err := b.CancelRun(t.Context(), c)
			return err
		}
	}
	refused(t, b, map[string]bad{
		"no run":                {fault.NotFound, "run", cancel(func(c *engine.Cancel) { c.Run = id.Run{} })},
		"unknown run":           {fault.NotFound, "run", cancel(func(c *engine.Cancel) { c.Run = id.Of[id.Run](newClaim().UUID) })},
		"no tenant":             {fault.NotFound, "run", cancel(func(c *engine.Cancel) { c.Tenant = id.Tenant{} })},
		"a run that has ended":  {fault.Conflict, "state", cancel(func(c *engine.Cancel) { c.Run = ended.Run })},
		"huge reason":           {fault.LimitExceeded, "reason", cancel(func(c *engine.Cancel) { c.Reason = long(run.MaxReasonLength + 1) })},
		"reason with zero byte": {fault.InvalidArgument, "reason", cancel(func(c *engine.Cancel) { c.Reason = zeroByte })},
		"reason not UTF-8":      {fault.InvalidArgument, "reason", cancel(func(c *engine.Cancel) { c.Reason = notUTF8 })},
		"actor with zero byte":  {fault.InvalidArgument, "request", cancel(func(c *engine.Cancel) { c.Meta.Trace = zeroByte })},
	})
	cancelled, err := b.CancelRun(t.Context(), engine.Cancel{Tenant: key.Tenant, Run: key.Run, Reason: long(run.MaxReasonLength)})
	require.NoError(t, err)
	require.Equal(t, run.RunCancelled, cancelled.State)
}

func TestBadEntities(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tenant := func(name string) func(*testing.T, *bundle) error {
		return func(t *testing.T, b *bundle) error {
			t.Helper()
			created, err := b.CreateTenant(t.Context(), name, engineMeta)
			require.Zero(t, created)
			return err
		}
	}
	workspace := func(owner id.Tenant, name string) func(*testing.T, *bundle) error {
		return func(t *testing.T, b *bundle) error {
			t.Helper()
			created, err := b.CreateWorkspace(t.Context(), owner, name, engineMeta)
			require.Zero(t, created)
			return err
		}
	}
	deploy := func(owner id.Tenant, workspace string, m *asset.Manifest) func(*testing.T, *bundle) error {
		return func(t *testing.T, b *bundle) error {
			t.Helper()
			deployed, err := b.Deploy(t.Context(), owner, workspace, m, engineMeta)
			require.Zero(t, deployed)
			return err
		}
	}
	good, err := asset.Parse([]byte(manifestText), "servo.yaml")
	require.NoError(t, err)
	circle := &asset.Manifest{Version: 1, Assets: []asset.Asset{
		{Key: "a/a", Upstream: []string{"a/b"}, Exec: &asset.Exec{Command: []string{"x"}}},
		{Key: "a/b", Upstream: []string{"a/a"}, Exec: &asset.Exec{Command: []string{"x"}}},
	}}
	noTenant := id.Of[id.Tenant](newClaim().UUID)
	refused(t, b, map[string]bad{
		"tenant without name":      {fault.InvalidArgument, "name", tenant("")},
		"tenant, bad name":         {fault.InvalidArgument, "name", tenant("Acme Inc.")},
		"tenant, huge name":        {fault.InvalidArgument, "name", tenant(long(101))},
		"tenant, name too huge":    {fault.InvalidArgument, "name", tenant(long(1 << 20))},
		"tenant, zero byte":        {fault.InvalidArgument, "name", tenant(zeroByte)},
		"tenant, line feed":        {fault.InvalidArgument, "name", tenant("acme\n")},
		"tenant, name is taken":    {fault.AlreadyExists, "name", tenant("acme")},
		"workspace without name":   {fault.InvalidArgument, "name", workspace(b.tenant, "")},
		"workspace, not UTF-8":     {fault.InvalidArgument, "name", workspace(b.tenant, notUTF8)},
		"workspace, name is taken": {fault.AlreadyExists, "name", workspace(b.tenant, "default")},
		"workspace of no tenant":   {fault.NotFound, "tenant", workspace(noTenant, "prod")},
		"workspace of zero":        {fault.NotFound, "tenant", workspace(id.Tenant{}, "prod")},
		"deploy nothing":           {fault.InvalidArgument, "manifest", deploy(b.tenant, "default", nil)},
		"deploy an empty manifest": {fault.InvalidManifest, "version", deploy(b.tenant, "default", &asset.Manifest{})},
		"deploy a circle":          {fault.CycleDetected, "assets[a/b].upstream", deploy(b.tenant, "default", circle)},
		"deploy to nowhere":        {fault.NotFound, "workspace", deploy(b.tenant, "nope", good)},
		"deploy to zero byte":      {fault.InvalidArgument, "workspace", deploy(b.tenant, zeroByte, good)},
		"deploy for no tenant":     {fault.NotFound, "workspace", deploy(noTenant, "default", good)},
		"deploy, no workspace":     {fault.NotFound, "workspace", deploy(noTenant, "", good)},
	})
	deployed, err := b.Deploy(t.Context(), b.tenant, "", good, engineMeta)
	require.NoError(t, err, "no workspace is the default one, as for a trigger")
	again, err := b.Deploy(t.Context(), b.tenant, "default", good, engineMeta)
	require.NoError(t, err)
	require.Equal(t, deployed, again)
}

// TestDefaultMaxDelay: retry policies are checked against the default that applies when they are used.
func TestDefaultMaxDelay(t *testing.T) {
	t.Parallel()
	require.Equal(t, asset.DefaultMaxDelay.Std(), run.Resolve("").MaxDelay)
}
