package intercept

import (
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// The rules of the contract cost some microseconds for each message inside a request. Reports and
// heartbeats carry hundreds of items, thousands of times per second. They are first checked here, by
// hand: a request that is surely valid needs no more, and the rules decide about all others. These
// checks must never accept what the rules refuse; a test compares the two.

// Bounds of items: at most those of the contract.
const (
	maxLease      = 200
	maxText       = 65536
	maxShortText  = 100
	maxPartition  = 1000
	maxWorkerName = 200
	maxItems      = 10_000
	maxFanOut     = 100_000
	minAssetKey   = 3
	maxAssetKey   = 201
)

// surelyValid reports whether a request is certain to satisfy the rules.
func surelyValid(req proto.Message) bool {
	switch r := req.(type) {
	case *servov1.ReportRequest:
		if !validWorkerName(r.GetWorkerId()) || len(r.GetItems()) == 0 || len(r.GetItems()) > maxItems {
			return false
		}
		for _, item := range r.GetItems() {
			if !validLease(item.GetLease()) || !validAction(item) {
				return false
			}
		}
		return true
	case *servov1.HeartbeatRequest:
		if !validWorkerName(r.GetWorkerId()) || len(r.GetLeases()) > maxItems {
			return false
		}
		for _, item := range r.GetLeases() {
			if !validLease(item.GetLease()) || !validProgress(item.GetProgress()) {
				return false
			}
		}
		return true
	}
	return false
}

func validWorkerName(worker string) bool { return worker != "" && len(worker) <= maxWorkerName }
func validLease(lease string) bool       { return lease != "" && len(lease) <= maxLease }

func validAction(item *servov1.ReportItem) bool {
	switch a := item.GetAction().(type) {
	case *servov1.ReportItem_Start:
		return true
	case *servov1.ReportItem_Advance:
		return len(a.Advance.GetExpected()) <= maxText && len(a.Advance.GetNext()) <= maxText
	case *servov1.ReportItem_Yield:
		return len(a.Yield.GetCursor()) <= maxText
	case *servov1.ReportItem_Complete:
		_, defined := servov1.Complete_Status_name[int32(a.Complete.GetStatus())]
		return defined
	case *servov1.ReportItem_Fail:
		f := a.Fail.GetError()
		return f.GetCode() != "" && len(f.GetCode()) <= maxShortText && len(f.GetMessage()) <= maxText &&
			len(f.GetSuggestedAction()) <= maxText && len(f.GetClass()) <= maxShortText
	case *servov1.ReportItem_FanOut:
		return validFanOut(a.FanOut)
	case *servov1.ReportItem_Progress:
		return validProgress(a.Progress)
	case *servov1.ReportItem_Log:
		return a.Log.GetSeq() >= 1 && len(a.Log.GetText()) <= maxText
	}
	return false
}

func validProgress(p *servov1.Progress) bool {
	return len(p.GetPhase()) <= maxShortText && len(p.GetStage()) <= maxShortText &&
		p.GetFraction() >= 0 && p.GetFraction() <= 1 && // not NaN either
		p.GetRecordsExtracted() >= 0 && p.GetRecordsTransformed() >= 0 && p.GetRecordsLoaded() >= 0 && p.GetBytes() >= 0
}

func validFanOut(f *servov1.FanOut) bool {
	if f.GetOrdinal() < 0 || len(f.GetTasks()) == 0 || len(f.GetTasks()) > maxFanOut {
		return false
	}
	for _, t := range f.GetTasks() {
		if len(t.GetAsset()) > maxAssetKey || utf8.RuneCountInString(t.GetAsset()) < minAssetKey || len(t.GetPartition()) > maxPartition {
			return false
		}
	}
	return true
}
