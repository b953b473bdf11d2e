package api

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/push"
	"go.arco.dev/servo/internal/store"
)

// pushWorker is the actor of all calls through presigned URLs. The URL identifies the attempt, not the
// worker.
const pushWorker = "push"

// Callback applies a call of a push worker to a verified presigned URL: with the same checks and
// handlers as calls of pull workers, and with the lease of the URL. read reads the sent message.
func (s *Server) Callback(ctx context.Context, c push.Callback, read func(proto.Message) error) (proto.Message, error) {
	req, err := s.callbackRequest(ctx, c, read)
	if err != nil {
		return nil, err
	}
	info := &grpc.UnaryServerInfo{Server: s, FullMethod: push.CallbackPath + string(c.Action)}
	answer, err := s.Presigned(pushWorker)(ctx, req, info, func(ctx context.Context, req any) (any, error) {
		switch req := req.(type) {
		case *servov1.ReportRequest:
			if c.Action == push.ActionReport {
				return workerService{s}.Report(ctx, req)
			}
			return s.reportOne(ctx, req.GetItems()[0])
		case *servov1.HeartbeatRequest:
			answers, err := workerService{s}.Heartbeat(ctx, req)
			if err != nil {
				return nil, err
			}
			return answers.GetLeases()[0], nil
		case *servov1.GetTaskRequest:
			return s.upstreamOf(ctx, c, req)
		case *servov1.ListUpstreamTasksRequest:
			return taskService{s}.ListUpstreamTasks(ctx, req)
		}
		return nil, unknownAction(c.Action)
	})
	message, _ := answer.(proto.Message) // nil after an error
	return message, err
}

// callbackRequest maps a callback to the request of a pull worker.
func (s *Server) callbackRequest(ctx context.Context, c push.Callback, read func(proto.Message) error) (proto.Message, error) {
	lease := handle{TaskKey: taskOf(c), attempt: c.Attempt, token: c.Token}.encode()
	report := func(item *servov1.ReportItem) proto.Message {
		return &servov1.ReportRequest{WorkerId: pushWorker, Items: []*servov1.ReportItem{item}}
	}
	switch c.Action {
	case push.ActionStatus:
		item := &servov1.ReportItem{}
		err := read(item)
		return report(item), leased(item, lease, err)
	case push.ActionReport:
		req := &servov1.ReportRequest{}
		err := read(req)
		req.WorkerId = pushWorker
		for _, item := range req.GetItems() {
			err = leased(item, lease, err)
		}
		return req, err
	case push.ActionCursor:
		advance := &servov1.Advance{}
		err := read(advance)
		return report(&servov1.ReportItem{Lease: lease, Action: &servov1.ReportItem_Advance{Advance: advance}}), err
	case push.ActionFanOut:
		fanOut := &servov1.FanOut{}
		err := read(fanOut)
		return report(&servov1.ReportItem{Lease: lease, Action: &servov1.ReportItem_FanOut{FanOut: fanOut}}), err
	case push.ActionHeartbeat:
		item := &servov1.HeartbeatItem{}
		err := read(item)
		item.Lease = lease
		return &servov1.HeartbeatRequest{WorkerId: pushWorker, Leases: []*servov1.HeartbeatItem{item}}, err
	case push.ActionUpstream:
		return s.upstreamRequest(ctx, c, read)
	}
	return nil, unknownAction(c.Action)
}

func taskOf(c push.Callback) store.TaskKey {
	return store.TaskKey{Tenant: c.Tenant, Run: c.Run, Task: c.Task}
}

// leased sets the lease of the URL in an item. It refuses an item that names another lease.
func leased(item *servov1.ReportItem, lease string, err error) error {
	if err == nil && item.GetLease() != "" && item.GetLease() != lease {
		return fault.New(fault.InvalidArgument, "differs from the lease of the URL", fault.Field("lease"), fault.Remedy("remove it"))
	}
	item.Lease = lease
	if start := item.GetStart(); err == nil && start != nil && start.GetInstance() == "" {
		return fault.New(fault.InvalidArgument, "is missing: an envelope may arrive twice, and only one instance may execute it", fault.Field("start.instance"),
			fault.Remedy("send a name that is unique per process of the worker, such as a random UUID"))
	}
	return err
}

func unknownAction(action push.Action) error {
	return fault.New(fault.NotFound, "no callback "+string(action), fault.Field("action"), fault.Remedy("use a URL of the envelope"))
}

// reportOne applies one item. A refusal is the error of the call.
func (s *Server) reportOne(ctx context.Context, item *servov1.ReportItem) (*servov1.ReportAnswer, error) {
	w := workerService{s}
	b := newBatch(ctx, []*servov1.ReportItem{item})
	w.applyLogs(ctx, b)
	w.applyProgress(ctx, b)
	w.applyReports(ctx, b)
	return b.answers[0], b.errs[0]
}

// upstreamRequest requests one upstream task by its run and id, or a page of all of them.
func (s *Server) upstreamRequest(ctx context.Context, c push.Callback, read func(proto.Message) error) (proto.Message, error) {
	asked := &servov1.ListUpstreamTasksRequest{}
	if err := read(asked); err != nil {
		return nil, err
	}
	tenant, err := s.tenants.Name(ctx, c.Tenant)
	if err != nil {
		return nil, s.Explain(ctx, push.CallbackPath+string(c.Action), err)
	}
	if asked.GetTenant() != "" && asked.GetTenant() != tenant {
		return nil, fault.New(fault.InvalidArgument, "differs from the tenant of the URL", fault.Field("tenant"), fault.Remedy("remove it"))
	}
	if asked.GetTask() == "" && asked.GetRun() == "" {
		asked.Tenant, asked.Run, asked.Task = tenant, c.Run.String(), c.Task.String()
		return asked, nil
	}
	if asked.GetRun() == "" {
		asked.Run = c.Run.String()
	}
	return &servov1.GetTaskRequest{Tenant: tenant, Run: asked.GetRun(), Task: asked.GetTask()}, nil
}

// upstreamOf returns an upstream task of the URL's task.
func (s *Server) upstreamOf(ctx context.Context, c push.Callback, req *servov1.GetTaskRequest) (*servov1.UpstreamTask, error) {
	run, err := id.Parse[id.Run]("run", req.GetRun())
	if err != nil {
		return nil, err
	}
	task, err := id.Parse[id.Task]("task", req.GetTask())
	if err != nil {
		return nil, err
	}
	found, err := s.store.UpstreamOf(ctx, taskOf(c), run, task)
	if err != nil {
		return nil, err
	}
	return upstreamToProto(found)
}

func upstreamToProto(t store.UpstreamTask) (*servov1.UpstreamTask, error) {
	result, err := valueOf(t.Result)
	return &servov1.UpstreamTask{
		Task: t.Task.String(), Index: t.Index, Asset: t.Asset, Partition: t.Partition, State: servov1.Task_State(t.State),
		Outcome: string(t.Outcome), Result: result,
	}, err
}
