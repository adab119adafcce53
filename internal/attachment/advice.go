package attachment

const (
	showID  = "fieldgwctl show ID"
	retryID = "fieldgwctl retry ID"
)

var advice = []Advice{
	{HoldQueued, KindHold, "Waits for its turn.", "Nothing to do.", WhoNobody, ""},
	{HoldBackoff, KindHold, "The last attempt failed; the next one comes by itself.", "Nothing to do, or try now.", WhoTechnician, retryID},
	{HoldPaused, KindHold, "Somebody paused this file.", "Resume it.", WhoTechnician, "fieldgwctl resume ID"},
	{HoldChannelPaused, KindHold, "Somebody paused all sending.", "Resume sending.", WhoTechnician, "fieldgwctl resume"},
	{HoldNotConfigured, KindHold, "No server is configured on this device.", "Set uplink.endpoint and the credential in the configuration and restart fieldgwd.", WhoOperator, "fieldgwd check-config"},
	{HoldOffline, KindHold, "The server cannot be reached.", "Wait for coverage; sending goes on by itself.", WhoNobody, ""},
	{HoldServerBusy, KindHold, "The server asked us to wait.", "Nothing to do.", WhoNobody, ""},
	{HoldServerError, KindHold, "The server fails to answer properly.", "Tell whoever runs the server if this lasts.", WhoOperator, ""},
	{HoldServerFull, KindHold, "The server has no room left.", "Make room on the server.", WhoOperator, ""},
	{HoldNotOurServer, KindHold, "Something answers at the server's address that is not a fieldgw server.", "Sign in to the network's portal page, or correct uplink.endpoint.", WhoTechnician, ""},
	{HoldCredentials, KindHold, "The server does not accept this device's credential.", "Install a valid credential; it is read again by itself.", WhoOperator, ""},
	{HoldCredentialUnusable, KindHold, "The device's credential cannot be read.", "Install the credential file with mode 0600, readable by the user fieldgw; it is read again by itself.", WhoOperator, "fieldgwd check-config"},
	{HoldTLS, KindHold, "The server's certificate is not trusted.", "Check uplink.ca_file, the server's certificate and this device's clock.", WhoOperator, ""},
	{HoldWaitingParent, KindHold, "The server waits for the inspection that this file belongs to.", "Nothing to do; it is asked again by itself.", WhoNobody, ""},
	{HoldStorageReserve, KindHold, "Free space is below the reserve: no new files are taken. They stay where they are.", "Free space on the volume.", WhoTechnician, "fieldgwctl status"},
	{HoldStorageUnknown, KindHold, "Free space cannot be measured.", "Check the volume that holds the state directory.", WhoOperator, ""},

	{NeedsSizeLimit, KindAttention, "The server does not take a file this large.", "Raise the server's limit, then retry.", WhoOperator, retryID},
	{NeedsMediaType, KindAttention, "The server does not take this kind of file.", "Allow the media type on the server, then retry.", WhoOperator, retryID},
	{NeedsParentPolicy, KindAttention, "The server refuses to bind this file to its inspection.", "Check the inspection on the server, then retry.", WhoOperator, retryID},
	{NeedsIdentityConflict, KindAttention, "The server knows this ID with other content.", "Keep the file and report it: this must not happen.", WhoOperator, showID},
	{NeedsTakeover, KindAttention, "This file was begun by another device and may not be taken over.", "Let the account's administrator allow it, then retry.", WhoOperator, retryID},
	{NeedsForbidden, KindAttention, "This device may not send this file.", "Check the device's rights on the server, then retry.", WhoOperator, retryID},
	{NeedsRefused, KindAttention, "The server refuses this file for good.", "See the detail; when it is mended, retry.", WhoOperator, retryID},
	{NeedsReceiptMismatch, KindAttention, "The server's receipt speaks of something else than this file.", "Report it; the file is kept. Retry asks again.", WhoOperator, retryID},
	{NeedsPayloadMissing, KindAttention, "The file is gone from the spool.", "Look for it in the spool directory or restore it from a backup, then retry.", WhoOperator, retryID},
	{NeedsPayloadChanged, KindAttention, "The file in the spool is no longer what was captured.", "Check the storage medium; restore the file, then retry.", WhoOperator, retryID},
	{NeedsDamagedEarly, KindAttention, "The file was damaged before custody was complete.", "What is left is kept; look at it and capture again if possible.", WhoTechnician, showID},
	{NeedsEmptyFile, KindAttention, "The file is empty and stayed so.", "Capture again; the empty file is kept as it is.", WhoTechnician, showID},
	{NeedsNoAnswer, KindAttention, "A submission was interrupted and its source is gone; nobody was told that it succeeded.", "Check the file, then retry to send it.", WhoTechnician, retryID},
	{NeedsManifestDamaged, KindAttention, "The record of this file is damaged; the file itself is kept.", "Run a check and keep the state directory.", WhoOperator, showID},

	{NotTakenSettling, KindNotTaken, "Still changing, or changed a moment ago.", "Nothing to do.", WhoNobody, ""},
	{NotTakenOpen, KindNotTaken, "A program still has it open for writing.", "Let the capture app finish or close it.", WhoTechnician, ""},
	{NotTakenEmpty, KindNotTaken, "The file is empty.", "Nothing to do; if it stays empty it will be secured for a look.", WhoNobody, ""},
	{NotTakenUnreadable, KindNotTaken, "The file cannot be read.", "Check the storage medium.", WhoTechnician, ""},
	{NotTakenPermission, KindNotTaken, "fieldgw may not read it.", "Give the user fieldgw access to the file and its directory.", WhoOperator, ""},
	{NotTakenSpecial, KindNotTaken, "Not a regular file.", "Nothing to do; it is left alone.", WhoNobody, ""},
	{NotTakenTemporary, KindNotTaken, "Its name says that it is temporary.", "Nothing to do; it is taken once it is renamed.", WhoNobody, ""},
	{NotTakenUnavailable, KindNotTaken, "The capture directory is not there.", "Mount the card or create the directory.", WhoTechnician, ""},
	{NotTakenStorage, KindNotTaken, "There is no room to take it.", "Free space on the volume; it is taken by itself then.", WhoTechnician, "fieldgwctl status"},
	{NotTakenChanged, KindNotTaken, "It changed while it was being taken; it is looked at again.", "Nothing to do.", WhoNobody, ""},
	{NotTakenQueue, KindNotTaken, "The queue cannot record anything at the moment.", "Look into the service's log.", WhoOperator, ""},
	{NotTakenTooDeep, KindNotTaken, "The directory is nested too deeply.", "Move it up.", WhoTechnician, ""},
	{NotTakenNotWatched, KindNotTaken, "The kernel gives no events for this directory; it is scanned from time to time.", "Raise the limit that is named.", WhoOperator, ""},
}
