package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"go.arco.dev/servo/internal/worker/host"
)

// addData adds the partitions of a task, the directory of its output and the versions of its inputs.
// Files are downloaded when the host requests them.
func (p *Python) addData(ctx context.Context, task *Task, request *host.Run) error {
	for _, partition := range PartitionsOf(task.Lease()) {
		request.Partitions = append(request.Partitions, partition)
	}
	if dir := task.OutputDir(); dir != "" {
		if err := p.User.own(dir); err != nil {
			return diskError(err)
		}
		request.Output = &host.Output{Dir: dir, Format: task.OutputFormat(), Schema: task.output.Output.Schema}
	}
	if !task.hasInputFiles() {
		return nil
	}
	for i, u := range task.Lease().GetUpstream() {
		committed, err := task.committed(ctx, u)
		if err != nil {
			return err
		}
		if committed != nil {
			request.Inputs[i].Output = &host.InputOutput{Format: committed.Format, Rows: committed.Rows, Digest: committed.Digest}
		}
	}
	return nil
}

// Check runs a check function of the project over the files of the output.
func (p *Python) Check(ctx context.Context, task *Task, function string) error {
	request, err := p.request(ctx, task)
	if err != nil {
		return err
	}
	request.Check = function
	outcome, _, err := p.Pool.Execute(ctx, p.Code, task.Lease().GetTask(), request, &hostBackend{task}, task.Aborted())
	if err != nil {
		return err
	}
	return CheckVerdict(function, outcome.Result)
}

// CheckVerdict returns the failure that a check function reports; nil if it passed.
func CheckVerdict(function string, result json.RawMessage) error {
	var verdict host.Verdict
	if err := json.Unmarshal(result, &verdict); err != nil {
		return fmt.Errorf("the verdict of check %s cannot be read: %w", function, err)
	}
	if verdict.Passed {
		return nil
	}
	return errors.New(verdict.Message)
}

// inputFiles downloads the output of one upstream, once, and returns its files by partition.
func (t *Task) inputFiles(ctx context.Context, asset string) ([]host.InputFiles, error) {
	t.loading.Lock()
	defer t.loading.Unlock()
	found := []host.InputFiles{}
	if !t.hasInputFiles() {
		return found, nil
	}
	for i, u := range t.Lease().GetUpstream() {
		if u.GetAsset() != asset {
			continue
		}
		in, err := t.load(ctx, u, i)
		if err != nil {
			return nil, inputError(ctx, asset, err)
		}
		if in != nil {
			found = append(found, host.InputFiles{Partition: u.GetPartition(), Format: in.Format, Rows: in.Rows, Schema: in.Schema, Files: in.Files})
		}
	}
	return found, nil
}
