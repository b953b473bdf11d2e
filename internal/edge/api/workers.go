package api

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/structpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/base/telemetry"
	"go.arco.dev/servo/internal/edge/intercept"
	"go.arco.dev/servo/internal/engine"
)

// workerService implements servo.v1.WorkerService.
type workerService struct{ *Server }

// Bounds of a claim.
const (
	maxWait = 60 * time.Second
	// maxAnswerMargin is the part of a caller's deadline that is reserved for the answer, at most a
	// quarter of it.
	maxAnswerMargin = time.Second
	// maxUpstreamBytes bounds the upstream results in the answer to a claim. The worker reads further
	// results with GetTask.
	maxUpstreamBytes = 2 << 20
)

// Claim implements servov1.WorkerServiceServer. When the server stops, a waiting claim returns no
// leases, and a claim in progress is refused: its repeat with the same id returns its leases.
func (s workerService) Claim(ctx context.Context, req *servov1.ClaimRequest) (*servov1.ClaimResponse, error) {
	claim, err := id.Parse[id.Claim]("claim_id", req.GetClaimId())
	if err != nil {
		return nil, err
	}
	wait := min(req.GetWait().AsDuration(), maxWait)
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		wait = max(0, min(wait, left-min(left/4, maxAnswerMargin)))
	}
	if wait > 0 {
		// The server acknowledges the claim before it waits. A worker without an acknowledgement sends
		// the claim to another server, by the same id.
		_ = grpc.SendHeader(ctx, nil) // a call over REST has no headers of its own yet
	}
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.closing, cancel)() //nolint:contextcheck // the server ends before the call

	request := engine.ClaimRequest{
		Worker: req.GetWorkerId(), Claim: claim, Pools: req.GetPools(), Tenant: workerTenant(ctx), Max: int(req.GetMax()), Slots: int(req.GetSlots()), Lease: req.GetLease().AsDuration(),
		Wait: wait, Start: req.GetStart(), Presence: req.GetPresence(), Capabilities: req.GetCapabilities(), Meta: intercept.Meta(ctx),
	}
	leases, err := s.engine.Claim(waiting, request)
	if err != nil {
		return nil, err
	}
	m := leaseMapper{names: s.tenants, parameters: map[id.Run]*structpb.Struct{}, code: map[codeKey]*servov1.Code{}}
	lasts, _ := s.engine.LeaseTimes(request)
	answer := &servov1.ClaimResponse{Leases: make([]*servov1.Lease, len(leases)), LeaseDuration: duration(lasts)}
	for i, l := range leases {
		if answer.Leases[i], err = m.toProto(ctx, l); err != nil {
			return nil, err
		}
	}
	return answer, nil
}

// leaseMapper maps the leases of one claim. Most of them share their run or their asset.
type leaseMapper struct {
	names      *intercept.TenantNames
	parameters map[id.Run]*structpb.Struct
	code       map[codeKey]*servov1.Code
	upstream   int // bytes of results so far
}

type codeKey struct {
	deployment id.Deployment
	asset      string
}

func (m *leaseMapper) toProto(ctx context.Context, l engine.Lease) (*servov1.Lease, error) {
	name, err := m.names.Name(ctx, l.Tenant)
	if err != nil {
		return nil, err
	}
	parameters, seen := m.parameters[l.Run]
	if !seen {
		if parameters, err = structOf(l.Parameters); err != nil {
			return nil, err
		}
		m.parameters[l.Run] = parameters
	}
	of := codeKey{l.Deployment, l.Asset}
	code, seen := m.code[of]
	if !seen {
		code = codeToProto(l.Code)
		m.code[of] = code
	}
	upstream, err := m.results(l.Upstream)
	if err != nil {
		return nil, err
	}
	out := &servov1.Lease{
		Lease:  handle{TaskKey: l.TaskKey, attempt: l.Attempt, token: l.Token}.encode(),
		Tenant: name, Run: l.Run.String(), Task: l.Task.String(), Attempt: l.Attempt, Asset: l.Asset, Partition: l.Partition,
		Pipeline: l.Pipeline, Parameters: parameters, Upstream: upstream, Cursor: l.Cursor, FanOuts: l.FanOuts,
		ExpiresAt: timestamp(l.ExpiresAt), Deadline: timestamp(l.Deadline), Timeout: duration(l.Timeout), Started: l.Started, Code: code, FencingToken: l.Token,
		TriggerType: l.TriggerType, Partitions: l.Partitions,
	}
	if err := m.addOutput(out, l); err != nil {
		return nil, err
	}
	out.TraceParent, out.TraceState = telemetry.Split(l.Trace)
	if w := l.Window; w != nil {
		out.Config, out.Slot, out.IntervalStart, out.IntervalEnd = w.Config, timestamp(w.Slot), timestamp(w.Start), timestamp(w.End)
	}
	return out, nil
}

// addOutput adds the declared output and checks of the asset. Tasks with upstreams get the workspace, so
// that they can find the outputs of these.
func (m *leaseMapper) addOutput(out *servov1.Lease, l engine.Lease) error {
	if declared := l.Code.Declared(); declared != nil {
		data, err := json.Marshal(declared)
		if err != nil {
			return err
		}
		out.Output, out.Workspace = string(data), l.Workspace.String()
	}
	if len(l.Upstream) > 0 {
		out.Workspace = l.Workspace.String()
	}
	return nil
}

func (m *leaseMapper) results(upstream []engine.UpstreamResult) ([]*servov1.UpstreamResult, error) {
	if len(upstream) == 0 {
		return nil, nil
	}
	results := make([]*servov1.UpstreamResult, len(upstream))
	for i, u := range upstream {
		out := &servov1.UpstreamResult{Run: u.Run.String(), Task: u.Task.String(), Asset: u.Asset, Partition: u.Partition, Omitted: u.Omitted}
		if m.upstream+len(u.Result) > maxUpstreamBytes {
			out.Omitted = true
		}
		if !out.GetOmitted() {
			m.upstream += len(u.Result)
			var err error
			if out.Result, err = valueOf(u.Result); err != nil {
				return nil, err
			}
		}
		results[i] = out
	}
	return results, nil
}

// progressPatience bounds the time in which a heartbeat writes progress. The leases are renewed before,
// and must not wait for progress, which only people read.
const progressPatience = time.Second

// Heartbeat implements servov1.WorkerServiceServer.
func (s workerService) Heartbeat(ctx context.Context, req *servov1.HeartbeatRequest) (*servov1.HeartbeatResponse, error) {
	beats := make([]engine.Heartbeat, len(req.GetLeases()))
	handles := make([]handle, len(req.GetLeases()))
	var reported []engine.Progress
	for i, item := range req.GetLeases() {
		h, err := leaseOf(ctx, item.GetLease())
		if err != nil {
			return nil, under(fmt.Sprintf("leases[%d]", i), err)
		}
		handles[i] = h
		beats[i] = engine.Heartbeat{Key: h.TaskKey, Token: h.token}
		if item.GetProgress() == nil {
			continue
		}
		progress, err := progressOf(h, item.GetProgress())
		if err != nil {
			return nil, under(fmt.Sprintf("leases[%d].progress", i), err)
		}
		reported = append(reported, progress)
	}
	outside, err := s.leasesOutsidePools(ctx, handles)
	if err != nil {
		return nil, err
	}
	for i := range handles {
		if outside[i] {
			return nil, under(fmt.Sprintf("leases[%d]", i), otherPool())
		}
	}
	if err := s.engine.WorkerAlive(req.GetWorkerId()); err != nil {
		return nil, err
	}
	pulses, err := s.engine.Heartbeats(ctx, beats)
	if err != nil {
		return nil, err
	}
	if len(reported) > 0 {
		patient, cancel := context.WithTimeout(ctx, progressPatience)
		defer cancel()
		if _, err := s.engine.Progress(patient, reported); err != nil {
			s.log.WarnContext(ctx, "cannot write the progress of a heartbeat; the next heartbeat repeats it", "worker", req.GetWorkerId(), "error", err)
		}
	}
	if err := s.returnUnheld(ctx, req, beats); err != nil {
		return nil, err
	}
	answer := &servov1.HeartbeatResponse{Leases: make([]*servov1.HeartbeatAnswer, len(pulses))}
	for i, p := range pulses {
		answer.Leases[i] = &servov1.HeartbeatAnswer{Held: p.Alive, ShouldCancel: p.ShouldCancel}
	}
	return answer, nil
}

// returnUnheld returns leases to the queue whose claim was answered but not received by the worker. If
// that fails, the next heartbeat retries it.
func (s workerService) returnUnheld(ctx context.Context, req *servov1.HeartbeatRequest, held []engine.Heartbeat) error {
	if req.GetSettled() == nil {
		return nil
	}
	first, err := id.Parse[id.Claim]("settled.first", req.GetSettled().GetFirst())
	if err != nil {
		return err
	}
	last, err := id.Parse[id.Claim]("settled.last", req.GetSettled().GetLast())
	if err != nil {
		return err
	}
	settled := engine.SettledClaims{Worker: req.GetWorkerId(), First: first, Last: last, Pools: poolsOf(ctx), Meta: intercept.Meta(ctx)}
	returned, err := s.engine.ReturnUnheld(ctx, settled, held)
	switch {
	case fault.Is(err, fault.InvalidArgument):
		return err
	case err != nil:
		s.log.WarnContext(ctx, "cannot return leases that a worker did not receive; the next heartbeat retries it", "worker", req.GetWorkerId(), "error", err)
	case returned > 0:
		s.log.InfoContext(ctx, "returned leases that a worker did not receive", "worker", req.GetWorkerId(), "leases", returned)
	}
	return nil
}

// StartTask implements servov1.WorkerServiceServer.
func (s workerService) StartTask(ctx context.Context, req *servov1.StartTaskRequest) (*servov1.ReportAnswer, error) {
	return s.one(ctx, req, engine.Start{Instance: req.GetInstance()}, nil)
}

// AdvanceCursor implements servov1.WorkerServiceServer.
func (s workerService) AdvanceCursor(ctx context.Context, req *servov1.AdvanceCursorRequest) (*servov1.ReportAnswer, error) {
	return s.one(ctx, req, engine.Advance{Expected: req.GetExpected(), Next: req.GetNext()}, nil)
}

// YieldTask implements servov1.WorkerServiceServer.
func (s workerService) YieldTask(ctx context.Context, req *servov1.YieldTaskRequest) (*servov1.ReportAnswer, error) {
	return s.one(ctx, req, engine.Yield{Cursor: req.Cursor}, nil)
}

// FanOutTask implements servov1.WorkerServiceServer.
func (s workerService) FanOutTask(ctx context.Context, req *servov1.FanOutTaskRequest) (*servov1.ReportAnswer, error) {
	return s.one(ctx, req, fanOutOf(req.GetOrdinal(), req.GetTasks(), req.GetBarrier()), nil)
}

// CompleteTask implements servov1.WorkerServiceServer.
func (s workerService) CompleteTask(ctx context.Context, req *servov1.CompleteTaskRequest) (*servov1.ReportAnswer, error) {
	action, err := completeOf(req.GetStatus(), req.GetResult())
	return s.one(ctx, req, action, err)
}

// FailTask implements servov1.WorkerServiceServer.
func (s workerService) FailTask(ctx context.Context, req *servov1.FailTaskRequest) (*servov1.ReportAnswer, error) {
	action, err := failOf(req.GetError(), req.ShouldRetry, req.GetRetryAfter().AsDuration())
	return s.one(ctx, req, action, err)
}

// one applies a report about one attempt; bad is the error of its action.
func (s workerService) one(ctx context.Context, req interface {
	GetTask() string
	GetAttempt() int32
	GetLease() string
}, action engine.Action, bad error,
) (*servov1.ReportAnswer, error) {
	h, err := handleFor(ctx, req.GetLease(), req.GetTask(), req.GetAttempt())
	if err != nil {
		return nil, err
	}
	if bad != nil {
		return nil, bad
	}
	answer, err := s.engine.ReportOne(ctx, engine.Report{TaskKey: h.TaskKey, Token: h.token, Action: action, Pools: poolsOf(ctx), Meta: intercept.Meta(ctx)})
	if err != nil {
		return nil, err
	}
	out := &servov1.ReportAnswer{}
	fill(out, answer)
	return out, nil
}
