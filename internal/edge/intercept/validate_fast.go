package api

import (
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// The checks of the contract cost some microseconds for each message inside a request. Calls
// that bring hundreds of items, thousands of times in a second, are looked at here first, by
// hand: what is plainly within the rules needs no more, and about the rest the rules
// themselves decide, and say what is wrong. This must never let pass what they refuse: a
// test holds the two against each other.

// Bounds of items, at most what the contract allows.
const (
	plainLease     = 200
	plainText      = 65536
	plainShort     = 100
	plainPartition = 1000
	plainWorker    = 200
	plainItems     = 10_000
	plainFanOut    = 100_000
	minAssetKey    = 3
	maxAssetKey    = 201
)

// plain says that a request is surely within the rules.
func plain(req proto.Message) bool {
	switch r := req.(type) {
	case *servov1.ReportRequest:
		if !plainName(r.GetWorkerId()) || len(r.GetItems()) == 0 || len(r.GetItems()) > plainItems {
			return false
		}
		for _, item := range r.GetItems() {
			if !plainHandle(item.GetLease()) || !plainAction(item) {
				return false
			}
		}
		return true
	case *servov1.HeartbeatRequest:
		if !plainName(r.GetWorkerId()) || len(r.GetLeases()) > plainItems {
			return false
		}
		for _, item := range r.GetLeases() {
			if !plainHandle(item.GetLease()) || !plainProgress(item.GetProgress()) {
				return false
			}
		}
		return true
	}
	return false
}

func plainName(worker string) bool  { return worker != "" && len(worker) <= plainWorker }
func plainHandle(lease string) bool { return lease != "" && len(lease) <= plainLease }

func plainAction(item *servov1.ReportItem) bool {
	switch a := item.GetAction().(type) {
	case *servov1.ReportItem_Start:
		return true
	case *servov1.ReportItem_Advance:
		return len(a.Advance.GetExpected()) <= plainText && len(a.Advance.GetNext()) <= plainText
	case *servov1.ReportItem_Yield:
		return len(a.Yield.GetCursor()) <= plainText
	case *servov1.ReportItem_Complete:
		_, defined := servov1.Complete_Status_name[int32(a.Complete.GetStatus())]
		return defined
	case *servov1.ReportItem_Fail:
		f := a.Fail.GetError()
		return f.GetCode() != "" && len(f.GetCode()) <= plainShort && len(f.GetMessage()) <= plainText &&
			len(f.GetSuggestedAction()) <= plainText && len(f.GetClass()) <= plainShort
	case *servov1.ReportItem_FanOut:
		return plainFanOutOf(a.FanOut)
	case *servov1.ReportItem_Progress:
		return plainProgress(a.Progress)
	case *servov1.ReportItem_Log:
		return a.Log.GetSeq() >= 1 && len(a.Log.GetText()) <= plainText
	}
	return false
}

func plainProgress(p *servov1.Progress) bool {
	return len(p.GetPhase()) <= plainShort && len(p.GetStage()) <= plainShort &&
		p.GetFraction() >= 0 && p.GetFraction() <= 1 && // not NaN either
		p.GetRecordsExtracted() >= 0 && p.GetRecordsTransformed() >= 0 && p.GetRecordsLoaded() >= 0 && p.GetBytes() >= 0
}

func plainFanOutOf(f *servov1.FanOut) bool {
	if f.GetOrdinal() < 0 || len(f.GetTasks()) == 0 || len(f.GetTasks()) > plainFanOut {
		return false
	}
	for _, t := range f.GetTasks() {
		if len(t.GetAsset()) > maxAssetKey || utf8.RuneCountInString(t.GetAsset()) < minAssetKey || len(t.GetPartition()) > plainPartition {
			return false
		}
	}
	return true
}
