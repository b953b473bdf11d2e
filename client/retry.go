package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

const (
	// maxAttempts is how often a call is made at most.
	maxAttempts = 5
	// retryBase and retryMax are the pause before a repeat, doubled each time.
	retryBase = 100 * time.Millisecond
	retryMax  = 5 * time.Second
	// keyHeader is the metadata by which the server knows a repeat.
	keyHeader = "idempotency-key"
)

// repeat is the effect of repeating a call.
type repeat int

const (
	repeatNever  repeat = iota // something else, or harm
	repeatSafe                 // the same again, or nothing
	repeatByKey                // the same again if it carries an idempotency key
	repeatResume               // a stream: its reader continues at its position
)

// repeats returns the effect of repeating a call. Unknown calls are not repeated.
func repeats(method string) repeat {
	switch method[strings.LastIndex(method, "/")+1:] {
	case "GetTenant", "ListTenants", "ListWorkspaces", "GetDeployment", "ListDeployments", "ListAssets", "GetAsset", "ListPipelines",
		"PlanRun", "ListRuns", "GetRun", "ListRunEvents", "ListTasks", "GetTask", "ListUpstreamTasks", "ListTaskLogs", "GetStatus",
		"VerifyProjections", "GetDispatch", "GetQuotas", "GetTenantMetrics", "ListLocks", "ListShares", "ExplainRun", "ExplainTask", "ListWorkers", "GetPool", "ListPools", "ListSigningKeys",
		"GetConfig", "ListConfigs", "PreviewConfig", "ListConfigAudit", "ListSlots", "GetOutcomes", "FindHoles", "GetEvent", "ListTemplates", "ExplainConfig", "Simulate",
		"ListAlerts", "GetAlert", "ListAlertChannels", "ListSubscriptions", "GetSubscription", "ListKeys", "ListAudit",
		"GetRunGraph", "WhoAmI", "ListLateRuns", "ListRunningRuns", "PreviewSchedule", "ListEvents", "GetActivity", "Search",
		"GetRelease", "ListReleases", "CheckRelease", "DiffReleases", "ListReleaseChannels", "GetReleaseChannel", "DiffDeployments",
		"ListAssetPartitions", "PreviewBackfill", "ListBackfills", "GetBackfill", "ListBackfillRuns",
		"ListMaterializations", "GetMaterialization":
		return repeatSafe
	case "Deploy", "CancelRun", "RepairRun", "ForceCancelTask", "PauseDispatch", "ResumeDispatch", "PauseAsset", "ResumeAsset", "SetQuotas", "RevokeSigningKey", "RevokeKey",
		"ApplyConfigs", "PauseConfig", "ResumeConfig", "Tick", "SendEvent", "SetTemplate", "PauseSubscription", "ResumeSubscription",
		"CreateRelease", "ActivateDeployment", "CopyDeployment", "UpdateReleaseChannel", "FollowChannelByLabel", "FollowChannel", "SetTenantLabels",
		"PauseBackfill", "ResumeBackfill", "CancelBackfill": // the same state, however often
		return repeatSafe
	case "Claim", "Report", "Heartbeat", "StartTask", "AdvanceCursor", "YieldTask", "FanOutTask", "CompleteTask", "FailTask": // known by claim or lease
		return repeatSafe
	case "TriggerRun", "TriggerRuns", "RetryRun", "TriggerConfig":
		return repeatByKey
	case "CreateTenant", "CreateWorkspace", "ReleaseLock", "CreatePool", "UpdatePool", "DeletePool", "CreateSigningKey", "RotateSigningKeys",
		"CreateConfig", "UpdateConfig", "DeleteConfig", "RescheduleConfig", "DeleteTemplate", "CreateAlertChannel", "TestAlertChannel", "DeleteAlertChannel",
		"CreateSubscription", "ReplaySubscription", "DeleteSubscription", "CreateKey", "RotateKey",
		"DeleteRelease", "CreateReleaseChannel", "DeleteReleaseChannel", "RollChannel", "PauseRollout", "ResumeRollout", "AdvanceRollout", "RollBackChannel",
		"CreateBackfill", "RetryBackfill":
		return repeatByKey
	case "WatchRun":
		return repeatResume
	default:
		return repeatNever
	}
}

// WithIdempotencyKey makes changes under the context known by a key of the caller's choice, for
// a day: the same request with the same key again gives the first answer, without secrets; of a
// trigger or a retry, the first run. Another request with it is a conflict. 1 to 255 printable
// characters of ASCII.
func WithIdempotencyKey(ctx context.Context, key string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, keyHeader, key)
}

// unary makes a call and repeats it while that is safe and useful.
func (c *Client) unary(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	kind := repeats(method)
	ownKey := false
	if kind == repeatByKey {
		if md, _ := metadata.FromOutgoingContext(ctx); len(md.Get(keyHeader)) == 0 {
			ctx, ownKey = WithIdempotencyKey(ctx, uuid.NewString()), true
		}
	}
	ctx = c.authenticated(ctx)
	began := time.Now()
	for attempt := 1; ; attempt++ {
		options := append([]grpc.CallOption{c.reach(ctx, began)}, opts...)
		err := problemOf(c.hedged(ctx, kind, method, reply, func(ctx context.Context, reply any) error {
			return invoke(ctx, method, req, reply, conn, options...)
		}))
		if err == nil {
			if answer, ok := reply.(*servov1.TriggerRunResponse); ok && ownKey {
				answer.RepeatedRequest = false // the repeat was ours, not the caller's
			}
			if answer, ok := reply.(*servov1.TriggerRunsResponse); ok && ownKey {
				forgetOwnRepeats(req, answer)
			}
			return nil
		}
		if kind == repeatNever || attempt == maxAttempts || !worthRepeating(kind, err) || ctx.Err() != nil || c.outOfPatience(began) {
			return err
		}
		c.log.DebugContext(ctx, "repeat a call", "method", method, "attempt", attempt, "error", err)
		if !pause(ctx, delay(attempt, err)) {
			return err
		}
	}
}

// forgetOwnRepeats clears the mark of repeats for items without a key of the caller: their keys were
// ours.
func forgetOwnRepeats(req any, answer *servov1.TriggerRunsResponse) {
	asked, ok := req.(*servov1.TriggerRunsRequest)
	if !ok || len(asked.GetRuns()) != len(answer.GetRuns()) {
		return
	}
	for i, item := range asked.GetRuns() {
		if item.GetIdempotencyKey() == "" {
			answer.Runs[i].RepeatedRequest = false
		}
	}
}

// worthRepeating reports whether the same call may go well the next time: the server could not take
// it, or is still at work on a try of which we have lost the answer.
func worthRepeating(kind repeat, err error) bool {
	p, ok := errors.AsType[*Problem](err)
	return Is(err, Unavailable) || (kind == repeatByKey && ok && p.Code == Conflict && p.Field == "idempotency_key" && p.RetryAfter > 0)
}

// stream opens a stream. Its reader decides about repeats: only it knows what it has seen.
func (c *Client) stream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := open(c.authenticated(ctx), desc, conn, method, append([]grpc.CallOption{c.reach(ctx, time.Now())}, opts...)...)
	if err != nil {
		return nil, problemOf(err)
	}
	return problemStream{stream}, nil
}

// authenticated adds the client's key to the context of a call, unless the caller has set one.
func (c *Client) authenticated(ctx context.Context) context.Context {
	if md, _ := metadata.FromOutgoingContext(ctx); c.apiKey == "" || len(md.Get("authorization"))+len(md.Get("x-api-key")) > 0 {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+c.apiKey)
}

// problemStream is a stream whose errors are problems.
type problemStream struct{ grpc.ClientStream }

func (s problemStream) RecvMsg(m any) error { return problemOf(s.ClientStream.RecvMsg(m)) }
func (s problemStream) SendMsg(m any) error { return problemOf(s.ClientStream.SendMsg(m)) }

// reach waits for a server for up to the client's patience. After that the call fails at once, with the
// reason why no server was reached.
func (c *Client) reach(ctx context.Context, began time.Time) grpc.CallOption {
	if c.patience == 0 {
		return grpc.WaitForReady(true)
	}
	ctx, cancel := context.WithDeadline(ctx, began.Add(c.patience))
	defer cancel()
	for {
		state := c.conn.GetState()
		if state == connectivity.Ready || state == connectivity.Shutdown {
			break
		}
		c.conn.Connect()
		if !c.conn.WaitForStateChange(ctx, state) {
			break
		}
	}
	return grpc.WaitForReady(false)
}

// outOfPatience reports whether no server is reachable and the client's patience has passed.
func (c *Client) outOfPatience(began time.Time) bool {
	return c.patience > 0 && time.Since(began) >= c.patience && c.conn.GetState() != connectivity.Ready
}

// delay is the pause before the next try: what the server asks for, or twice the one before,
// with jitter so that many clients do not come back at once.
func delay(attempt int, err error) time.Duration {
	wait := min(retryBase<<min(attempt-1, 10), retryMax)
	wait = wait/2 + rand.N(wait/2+1) //nolint:gosec // jitter needs no secrecy
	if p, ok := errors.AsType[*Problem](err); ok && p.RetryAfter > 0 {
		wait = max(wait, p.RetryAfter+rand.N(p.RetryAfter/4+1)) //nolint:gosec // jitter needs no secrecy
	}
	return wait
}

// pause waits, unless the context would be over before.
func pause(ctx context.Context, wait time.Duration) bool {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= wait {
		return false
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
